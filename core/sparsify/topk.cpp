// Exact top-k: keeps the k = max(1, trunc(density * n)) elements of largest magnitude.
//
// Source:      A. F. Aji, K. Heafield, "Sparse communication for distributed gradient descent",
//              EMNLP 2017; with error feedback, D. Alistarh et al., "The convergence of sparsified
//              gradient methods", NeurIPS 2018.
// Deviations:  none known. Ties go to the lower index, so the result is unique.
#include "core/sparsify/topk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/sparsify/largest.hpp"

namespace sparfuse {
namespace {

// The k-th magnitude moves slowly from step to step: 3 % below the last one it is almost always
// reached by k elements, and by few more. Under error feedback the residual piles up just below the
// k-th magnitude, and 3 % can be many: the margin follows the number of candidates that it gave.
constexpr float kMaxMargin = 0.03f;
constexpr float kMinMargin = 0.0005f;
constexpr std::uint32_t kMaxPause = 64;  // steps

struct TopKState final : SparsifierState {
  std::uint32_t bound = 0;  // key to start the next step with; 0: sample
  float last = 0;           // k-th magnitude of the step before
  float margin = kMaxMargin;
  std::uint32_t pause = 0;  // steps to sample yet; doubles with each failure in a row
  std::uint32_t next_pause = 1;

  void Learn(std::uint32_t key, std::uint64_t candidates, std::size_t k, bool failed) {
    if (bound > 0) {
      const double surplus = static_cast<double>(candidates) / static_cast<double>(k);
      if (failed) {
        margin *= 4;
        pause = next_pause;
        next_pause = std::min(2 * next_pause, kMaxPause);
      } else if (surplus > 1.5) {
        margin *= 0.85f;
      } else if (surplus < 1.1) {
        margin *= 1.5f;
      }
      if (!failed) next_pause = 1;
    } else if (pause > 0) {
      --pause;
    }
    margin = std::clamp(margin, kMinMargin, kMaxMargin);
    // A magnitude that moves fast, as in the first steps of error feedback, says little of the
    // next.
    const float kth = std::bit_cast<float>(key);
    const bool steady = std::abs(kth - last) <= kMaxMargin * last;
    bound = steady && pause == 0 ? std::bit_cast<std::uint32_t>(kth * (1 - margin)) : 0;
    last = kth;
  }
};

class TopK final : public Sparsifier {
 public:
  std::string_view name() const noexcept override { return "topk"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t /*n*/) const override {
    return std::make_unique<TopKState>();
  }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t k = KeptCount(input.n, density);
    RequireRoom(name(), info, slot, k);
    if (k == input.n) return SelectAll(context, input, info, slot);
    auto* warm = static_cast<TopKState*>(state);
    const std::uint32_t bound = warm == nullptr ? 0 : warm->bound;
    const SelectCounters before = *context.counters;
    const std::uint32_t key = SelectLargest(context, input, info, k, bound, slot);
    if (warm != nullptr) {
      warm->Learn(key, context.counters->candidates - before.candidates, k,
                  context.counters->fallbacks != before.fallbacks);
    }
  }
};

std::unique_ptr<Sparsifier> Make(const Options& /*resolved*/, std::uint64_t /*seed*/) {
  return std::make_unique<TopK>();
}

}  // namespace

SparsifierDescriptor TopKDescriptor() {
  return {.name = "topk",
          .paper = "Aji & Heafield, EMNLP 2017",
          .revision = 1,
          .exact_count = true,
          .index_shared = false,
          .selection_model = {},
          .contraction = KeptFraction,
          .deviations = "",
          .options = {},
          .make = Make};
}

}  // namespace sparfuse
