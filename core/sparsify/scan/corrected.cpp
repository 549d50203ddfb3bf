#include "core/sparsify/scan/corrected.hpp"

#include <algorithm>
#include <cmath>

#include "core/sparsify/scan/largest.hpp"

namespace sparfuse {
namespace {

// Bins of a histogram that starts at zero and spans all keys.
constexpr int kCoarseShift = 19;

std::size_t Elements(std::span<const std::int64_t> shape) {
  std::size_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
  return n;
}

}  // namespace

Candidates CollectAndMeasure(const SelectContext& context, SelectInput& input,
                             const TensorInfo& info, std::size_t k, const WarmBound* bound,
                             Statistics* statistics) {
  const std::size_t needed = std::min(k + CountTolerance(k) + 1, input.n);
  const std::size_t capacity = CandidateCapacity(input.n, needed);
  Bound from;
  if (bound != nullptr) from = {bound->key(), bound->kth()};
  for (double margin = 1;;) {
    const bool sampled = from.key == 0;
    if (sampled) from = SampledBound(context, input, info, needed, margin);
    const int shift = from.key == 0 ? kCoarseShift : kFineShift;
    const std::uint32_t lo = from.key + (from.crowded ? 1 : 0);
    Candidates candidates =
        Collect(context, input, info, lo, shift, capacity, statistics, from.kth);
    // Too many elements reach the last step's bound: a sample shows whether most of them are equal.
    if (candidates.count >= needed && (candidates.stored || sampled)) return candidates;
    if (from.crowded && MoreReach(input, from.key, capacity)) {
      candidates.ties_below = capacity;
      return candidates;
    }
    ++context.counters->fallbacks;
    Restore(input, candidates);
    statistics = nullptr;  // the first pass has measured them
    from.key = 0;
    if (sampled) margin *= 8;
  }
}

void Learn(const Candidates& candidates, std::uint32_t kth_key, std::size_t k, WarmBound* bound) {
  if (bound == nullptr) return;
  const bool failed = !candidates.stored || candidates.lo != bound->key();
  bound->Learn(kth_key, candidates.count, k, failed);
}

std::size_t SendCorrected(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Candidates& candidates, double estimate, std::size_t k,
                          WarmBound* bound, Slot& slot) {
  std::size_t count = 0;
  if (std::isnan(estimate)) {
    ++context.counters->fallbacks;
  } else {
    const std::uint32_t key = KeyAbove(estimate);
    count = std::max(candidates.count, candidates.ties_below);
    if (candidates.stored && key >= candidates.lo) {
      count = CountCandidates(context, candidates, key);
      const std::size_t tolerance = CountTolerance(k);
      if (count + tolerance >= k && count <= std::min(k + tolerance, slot.capacity)) {
        SendCandidates(context, input, candidates, key, slot);
        Learn(candidates, key, k, bound);
        return count;
      }
    }
  }
  Learn(candidates, SelectLargestAmong(context, input, info, candidates, k, slot), k, bound);
  return count;
}

double CorrectedFraction(std::span<const std::int64_t> shape, double density) {
  const std::size_t n = Elements(shape);
  const std::size_t k = KeptCount(n, density);
  return static_cast<double>(k - CountTolerance(k)) / static_cast<double>(n);
}

double OneElement(std::span<const std::int64_t> shape, double /*density*/) {
  return 1.0 / static_cast<double>(Elements(shape));
}

}  // namespace sparfuse
