// Selects exactly the k largest magnitudes (total order |x| descending, index ascending). Guesses a
// lower bound of them: a little below the k-th magnitude of the last step.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// Selects exactly k elements of x into the slot, sorted by index, and zeroes them in the residual.
//
//   bound   a key that k elements are expected to reach, or 0: then a sample gives one. It decides
//           the time taken, never the result.
//   kth     the expected k-th largest key, or kNoKey. It, too, decides only the time taken.
//   Returns a key that exactly the selected elements, or with ties a few more, reach.
//
// Preconditions: 1 <= k <= n, k <= slot.capacity. Throws Error{kNumeric}.
// Cost: one pass over x, as a rule. If fewer than k elements or more than 2k + 65536 reach the
// bound, `fallbacks` is raised and the pass repeated with a bound from the pass before.
std::uint32_t SelectLargest(const SelectContext& context, SelectInput& input,
                            const TensorInfo& info, std::size_t k, std::uint32_t bound, Slot& slot,
                            std::uint32_t kth = kNoKey);

// SelectLargest among given candidates. Preconditions: they are all elements with key >=
// candidates.lo; their count or candidates.ties_below is at least k.
std::uint32_t SelectLargestAmong(const SelectContext& context, SelectInput& input,
                                 const TensorInfo& info, Candidates candidates, std::size_t k,
                                 Slot& slot);

// The estimates that a sample gives before a pass: a key that k elements of x are expected to reach
// and not many more, and, if there is a residual, about the k-th largest key. A small tensor is not
// sampled, and the members keep their defaults.
struct Bound {
  std::uint32_t key = 0;
  std::uint32_t kth = kNoKey;
  // More than twice CandidateCapacity elements are expected to reach the key, and most equal it.
  bool crowded = false;
};

// `margin` >= 1 lowers the bound. Throws Error{kNumeric}.
Bound SampledBound(const SelectContext& context, const SelectInput& input, const TensorInfo& info,
                   std::size_t k, double margin);

// The rank-th largest of stored candidates. Precondition: 1 <= rank <= candidates.count.
std::uint32_t KeyOfRank(const SelectContext& context, const Candidates& candidates,
                        std::size_t rank);

// Guesses the bound of the next step from the k-th magnitude, which moves slowly from step to step.
// A bound 3 % below the last one is almost always reached by k elements, and by few more. Under
// error feedback the residual piles up just below the k-th magnitude, so that 3 % can hold many
// elements: the margin follows the number of candidates that it gave. For a large tensor a sample
// is used instead: it takes no time beside the pass, and its bound is better.
class WarmBound {
 public:
  // n: elements of the tensor.
  explicit WarmBound(std::size_t n) : large_(n >= kLarge) {}

  // The bound to start the next step with; 0: none is known.
  std::uint32_t key() const { return key_; }

  // The key that is expected of the next k-th magnitude, which goes on as in the last step; kNoKey
  // if it moves too fast.
  std::uint32_t kth() const { return kth_; }

  // Whether nothing has been learned yet.
  bool unused() const { return unused_; }

  // Learns from a step: the key of its k-th magnitude, the number of elements that reached key(),
  // and whether they were too few or too many.
  void Learn(std::uint32_t kth_key, std::uint64_t candidates, std::size_t k, bool failed) {
    unused_ = false;
    if (key_ > 0) {
      const double surplus = static_cast<double>(candidates) / static_cast<double>(k);
      if (failed) {
        margin_ *= 4;
        pause_ = next_pause_;
        next_pause_ = std::min(2 * next_pause_, kMaxPause);
      } else if (surplus > 1.5) {
        margin_ *= 0.85f;
      } else if (surplus < 1.1) {
        margin_ *= 1.5f;
      }
      if (!failed) next_pause_ = 1;
    } else if (pause_ > 0) {
      --pause_;
    }
    margin_ = std::clamp(margin_, kMinMargin, kMaxMargin);
    // A magnitude that moves fast, as in the first steps of error feedback, does not predict the
    // next one.
    const float kth = std::bit_cast<float>(kth_key);
    const bool steady = std::abs(kth - last_) <= kMaxMargin * last_;
    key_ = !large_ && steady && pause_ == 0 ? std::bit_cast<std::uint32_t>(kth * (1 - margin_)) : 0;
    kth_ = steady ? std::bit_cast<std::uint32_t>(kth + (kth - last_)) : kNoKey;
    last_ = kth;
  }

 private:
  static constexpr float kMaxMargin = 0.03f;
  static constexpr float kMinMargin = 0.0005f;
  static constexpr std::uint32_t kMaxPause = 64;  // steps
  static constexpr std::size_t kLarge = std::size_t{1} << 22;

  bool large_;
  bool unused_ = true;
  std::uint32_t key_ = 0;
  std::uint32_t kth_ = kNoKey;
  float last_ = 0;  // k-th magnitude of the step before
  float margin_ = kMaxMargin;
  std::uint32_t pause_ = 0;  // steps still without a bound; doubles with each failure in a row
  std::uint32_t next_pause_ = 1;
};

// The state of a sparsifier that remembers only a WarmBound.
struct WarmState final : SparsifierState {
  explicit WarmState(std::size_t n) : bound(n) {}
  WarmBound bound;
};

// Null if there is no state.
inline WarmBound* BoundOf(SparsifierState* state) {
  return state == nullptr ? nullptr : &static_cast<WarmState*>(state)->bound;
}

// SelectLargest with the bound (or null), which then learns from the step.
inline void SelectLargestWarm(const SelectContext& context, SelectInput& input,
                              const TensorInfo& info, std::size_t k, WarmBound* bound, Slot& slot) {
  const SelectCounters before = *context.counters;
  const std::uint32_t key =
      bound == nullptr ? SelectLargest(context, input, info, k, 0, slot)
                       : SelectLargest(context, input, info, k, bound->key(), slot, bound->kth());
  if (bound == nullptr) return;
  bound->Learn(key, context.counters->candidates - before.candidates, k,
               context.counters->fallbacks != before.fallbacks);
}

}  // namespace sparfuse
