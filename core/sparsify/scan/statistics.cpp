#include "core/sparsify/scan/statistics.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

// Bins of a histogram that starts at zero and spans all keys.
constexpr int kCoarseShift = 19;

}  // namespace
void MeasureBlock(const SelectKernels& kernels, const float* x, std::size_t n, Statistics& total) {
  BlockSums sums = {};
  if (total.moments != 0) {
    kernels.measure(x, n, total.moments, &sums);
  } else {
    sums.max_key = kernels.add(x, nullptr, n);
  }
  total.n += n;
  total.sum += sums.sum;
  total.sum_abs += sums.sum_abs;
  total.sum_squares += sums.sum_squares;
  total.max_key = std::max(total.max_key, sums.max_key);
  for (std::size_t t = 0; t < total.tail_count; ++t) {
    kernels.measure_tail(x, n, total.tails[t].key, sums.max_key, total.tail_squares,
                         &total.tails[t].sums);
  }
  if (!total.logs) return;
  double products[kSumLanes];
  std::int64_t exponent = 0;
  total.log_count += kernels.multiply_mantissas(x, n, products, &exponent);
  double logs = static_cast<double>(exponent) * std::log(2.0);
  for (const double product : products) logs += std::log(product);
  total.sum_log += logs;
}

void AddStatistics(const Statistics& part, Statistics& total) {
  total.n += part.n;
  total.sum += part.sum;
  total.sum_abs += part.sum_abs;
  total.sum_squares += part.sum_squares;
  total.max_key = std::max(total.max_key, part.max_key);
  for (std::size_t t = 0; t < total.tail_count; ++t) {
    TailSums& sums = total.tails[t].sums;
    sums.count += part.tails[t].sums.count;
    sums.sum_abs += part.tails[t].sums.sum_abs;
    sums.sum_squares += part.tails[t].sums.sum_squares;
  }
  total.sum_log += part.sum_log;
  total.log_count += part.log_count;
}

Statistics Measure(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   Statistics statistics) {
  // No finite element reaches the largest key of all.
  Collect(context, input, info, kAbsMask, 0, 0, &statistics);
  return statistics;
}

void CountReaching(const SelectContext& context, const SelectInput& input,
                   std::span<const std::uint32_t> keys, std::span<std::size_t> counts) {
  assert(keys.size() <= kCountedKeys && counts.size() == keys.size() && !input.pending);
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  std::uint32_t wanted[kCountedKeys];
  std::fill(std::begin(wanted), std::end(wanted), kInfinityKey);
  std::copy(keys.begin(), keys.end(), wanted);
  const std::size_t chunk_size = ChunkSize(input.n);
  const std::size_t chunks = (input.n + chunk_size - 1) / chunk_size;
  using Counts = std::size_t[kCountedKeys];
  const auto parts = WorkspaceArray<Counts>(*context.workspace, kUseChunkParts, chunks);
  context.pool->ParallelFor(chunks, [&](std::size_t c, int) {
    std::fill(std::begin(parts[c]), std::end(parts[c]), std::size_t{0});
    const std::size_t end = std::min(input.n, (c + 1) * chunk_size);
    for (std::size_t begin = c * chunk_size; begin < end; begin += kBlock) {
      kernels.count_reaching(input.x() + begin, std::min(kBlock, end - begin), wanted, parts[c]);
    }
  });
  std::fill(counts.begin(), counts.end(), std::size_t{0});
  for (const Counts& part : parts) {
    for (std::size_t j = 0; j < counts.size(); ++j) counts[j] += part[j];
  }
}

std::size_t CountCandidates(const SelectContext& context, const Candidates& candidates,
                            std::uint32_t key) {
  assert(candidates.stored);
  if (key <= candidates.lo) {
    for (CandidateSegment& run : candidates.runs()) run.above = run.count;
    return candidates.count;
  }
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  std::uint32_t keys[kCountedKeys];
  std::fill(std::begin(keys), std::end(keys), kInfinityKey);
  keys[0] = key;
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    for (CandidateSegment& run : candidates.chunks[c].runs()) {
      std::size_t counts[kCountedKeys] = {};
      kernels.count_reaching(candidates.values + run.offset, run.count, keys, counts);
      run.above = static_cast<std::uint32_t>(counts[0]);
    }
  });
  std::size_t count = 0;
  for (const CandidateSegment& run : candidates.runs()) count += run.above;
  return count;
}

void SendCandidates(const SelectContext& context, const SelectInput& input,
                    const Candidates& candidates, std::uint32_t key, Slot& slot, std::size_t most) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const auto starts =
      WorkspaceArray<std::size_t>(*context.workspace, kUseChunkParts, candidates.chunks.size());
  std::size_t total = 0;
  for (std::size_t c = 0; c < candidates.chunks.size(); ++c) {
    starts[c] = total;
    for (const CandidateSegment& run : candidates.chunks[c].runs()) total += run.above;
  }
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    std::size_t at = starts[c];
    for (CandidateSegment run : candidates.chunks[c].runs()) {
      const std::size_t left = at < most ? most - at : 0;
      if (run.above > left) {  // the last sent element is among these
        const float* const values = candidates.values + run.offset;
        const std::uint32_t count = run.count;
        run.count = 0;
        for (std::size_t sent = 0; sent < left; ++run.count) {
          sent += static_cast<std::size_t>(KeyOf(values[run.count]) >= key);
        }
        run.above = static_cast<std::uint32_t>(left);
        CandidateSegment rest = run;
        rest.count = count;
        Settle(input, candidates, rest, kNoKey, run.count);
      }
      at += kernels.emit(candidates.indices + run.offset, candidates.values + run.offset, run.count,
                         key, run.above, slot.indices.data + at, slot.values.data + at);
      Settle(input, candidates, run, key);
    }
  });
  slot.count = std::min(total, most);
}

std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         std::uint32_t key, std::size_t k, Slot& slot) {
  const std::size_t capacity =
      std::min(input.n, std::max(slot.capacity, CandidateCapacity(input.n, k)));
  return TakeReaching(context, input, info,
                      Collect(context, input, info, key, kFineShift, capacity, nullptr, key), key,
                      k, slot);
}

std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         const Candidates& candidates, std::uint32_t key, std::size_t k,
                         Slot& slot) {
  const bool too_many = key == candidates.lo && candidates.count > slot.capacity;
  if (key < candidates.lo || !(candidates.stored || too_many)) {
    Restore(input, candidates);
    return TakeReaching(context, input, info, key, k, slot);
  }
  const std::size_t count = too_many ? candidates.count : CountCandidates(context, candidates, key);
  if (count > 0 && count <= slot.capacity) {
    SendCandidates(context, input, candidates, key, slot);
    return count;
  }
  ++(count == 0 ? context.counters->fallbacks : context.counters->overflows);
  if (candidates.count >= k) {
    SelectLargestAmong(context, input, info, candidates, k, slot);
  } else {
    Restore(input, candidates);
    SelectLargest(context, input, info, k, 0, slot);
  }
  return count;
}

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
  const std::size_t n = ElementsOf(shape);
  const std::size_t k = KeptCount(n, density);
  return static_cast<double>(k - CountTolerance(k)) / static_cast<double>(n);
}

double OneElement(std::span<const std::int64_t> shape, double /*density*/) {
  return 1.0 / static_cast<double>(ElementsOf(shape));
}

// Newton's steps start on the larger side. As log(erfc) is concave, they fall towards the root and
// never pass it.
double TwoSidedNormalQuantile(double density) {
  double z = std::sqrt(-2 * std::log(density));  // P(|N| > z) <= exp(-z^2 / 2)
  const double root_half = std::sqrt(0.5);
  for (int i = 0; i < 100; ++i) {
    const double tail = std::erfc(z * root_half);
    const double slope = -2 * std::exp(-0.5 * z * z) / std::sqrt(2 * std::acos(-1.0)) / tail;
    const double next = z - (std::log(tail) - std::log(density)) / slope;
    if (!(next < z)) break;
    z = next;
  }
  return std::max(z, 0.0);
}

}  // namespace sparfuse
