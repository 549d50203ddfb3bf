// Source: the single pass follows the radix-free selection by sampled bound of R. W. Floyd and
// R. L. Rivest, "Expected time bounds for selection", CACM 18(3), 1975: a sample gives a bound that
// is safely too low, one pass collects what reaches it, and the exact cut is made among those few.
#include "core/sparsify/largest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/sparsify/random_stream.hpp"
#include "core/tensor/cpu.hpp"

namespace sparfuse {
namespace {

constexpr int kKeyBits = 31;
constexpr std::size_t kSmall = 8192;  // below, counting over all keys beats sampling
constexpr std::size_t kLine = 16;     // floats of a 64-byte line: the unit of the sample

std::uint32_t KeyOf(float x) { return std::bit_cast<std::uint32_t>(x) & kAbsMask; }

void ZeroSelected(const SelectInput& input, std::span<const std::uint32_t> indices) {
  if (input.residual == nullptr) return;
  for (const std::uint32_t i : indices) input.residual[i] = 0.0f;
}

// All keys of a small tensor fit in L1 or L2: count over them, bit by bit.
std::uint32_t SelectSmall(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          std::size_t k, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  if (input.pending) {
    kernels.add(input.gradient, input.residual, input.n);
    input.pending = false;
  }
  const float* const x = input.x();
  const auto keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseKeys, input.n);
  if (kernels.make_keys(x, input.n, keys.data()) >= kInfinityKey) ThrowNotFinite(input, info);
  const Cut cut = FindCut(kernels, keys, k, 0, kKeyBits);
  // Where more than k reach the cut they are ties at it, and the last of those are left.
  const std::size_t surplus = cut.count - k;
  std::size_t ties_kept = 0;
  if (surplus > 0) {
    ties_kept = k - kernels.count_at_least(keys.data(), input.n, cut.key + 1);
  }
  const auto offsets = WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, kOffsetRoom);
  std::size_t taken = 0;
  for (std::size_t begin = 0; begin < input.n; begin += kBlock) {
    const std::size_t size = std::min(kBlock, input.n - begin);
    const std::size_t count = kernels.scan(x + begin, nullptr, size, cut.key, offsets.data());
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t i = begin + offsets[j];
      if (surplus > 0 && keys[i] == cut.key) {
        if (ties_kept == 0) continue;
        --ties_kept;
      }
      slot.indices.data[taken] = static_cast<std::uint32_t>(i);
      slot.values.data[taken] = x[i];
      ++taken;
    }
  }
  slot.count = taken;
  ZeroSelected(input, {slot.indices.data, taken});
  return cut.key;
}

// Keys of a stratified random sample of 64-byte lines of x.
class Sample {
 public:
  Sample(const SelectContext& context, const SelectInput& input, const TensorInfo& info)
      : kernels_(SelectKernelsFor(ActiveIsa())), n_(input.n) {
    const std::size_t lines = n_ / kLine;
    const std::size_t wanted = std::clamp<std::size_t>(n_ / 64, 4096, 65536) / kLine;
    const RandomStream stream(0, info.id, info.step);
    keys_ = WorkspaceArray<std::uint32_t>(*context.workspace, kUseSample, wanted * kLine);
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::size_t first = i * lines / wanted;
      const std::size_t width = (i + 1) * lines / wanted - first;
      const std::size_t at = (first + stream.Below(width, i)) * kLine;
      if (input.pending) {
        for (std::size_t j = 0; j < kLine; ++j) {
          keys_[i * kLine + j] = KeyOf(input.gradient[at + j] + input.residual[at + j]);
        }
      } else {
        const float* const x = input.x() + at;
        for (std::size_t j = 0; j < kLine; ++j) keys_[i * kLine + j] = KeyOf(x[j]);
      }
    }
  }

  // A bound that k elements of x reach, but for one case in some 30,000 (four standard deviations
  // of a binomial) where elements of a line are independent; `margin` widens that.
  Cut SafeBound(std::size_t k, double margin) const {
    const double expected =
        static_cast<double>(k) * static_cast<double>(keys_.size()) / static_cast<double>(n_);
    const double rank = margin * (expected + 4 * std::sqrt(expected) + 4);
    if (rank >= static_cast<double>(keys_.size())) return {0, keys_.size()};
    return FindCut(kernels_, keys_, static_cast<std::size_t>(rank), 0, kKeyBits);
  }

  // How many elements of x are expected to reach a cut of the sample.
  double Expected(const Cut& cut) const {
    return static_cast<double>(cut.count) / static_cast<double>(keys_.size()) *
           static_cast<double>(n_);
  }

 private:
  const SelectKernels& kernels_;
  std::size_t n_;
  std::span<std::uint32_t> keys_;
};

struct Bin {
  std::size_t index = 0;
  std::size_t above = 0;  // elements in the bins above it
};

// The bin that holds the k-th largest candidate.
Bin FindBin(const Candidates& candidates, std::size_t k) {
  const std::uint32_t* const h = candidates.histogram;
  std::size_t above = h[kBins];
  if (above >= k) return {kBins, 0};
  constexpr std::size_t kGroup = 64;
  std::size_t top = kBins;
  for (; top > 0; top -= kGroup) {
    std::uint32_t sum = 0;
    for (std::size_t b = top - kGroup; b < top; ++b) sum += h[b];
    if (above + sum >= k) break;
    above += sum;
  }
  std::size_t b = top - 1;
  while (above + h[b] < k) above += h[b--];
  return {b, above};
}

// The exact cut among candidates that are all in memory.
std::uint32_t SelectStored(const SelectContext& context, SelectInput& input,
                           const Candidates& candidates, std::size_t k, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  if (candidates.count == k) {
    TakeFirst(input, candidates, k, slot);
    return candidates.lo;
  }
  const Bin bin = FindBin(candidates, k);
  const std::uint32_t bin_lo =
      candidates.lo + (static_cast<std::uint32_t>(bin.index) << candidates.shift);
  const bool open = bin.index == kBins;  // the last bin has no upper end
  const std::uint32_t bin_last = open ? kInfinityKey : bin_lo + ((1u << candidates.shift) - 1);

  const auto keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseKeys, candidates.count);
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    for (std::size_t r = 0; r < candidates.chunks[c].run_count; ++r) {
      CandidateRun& run = candidates.chunks[c].runs[r];
      std::size_t above = 0;
      run.in_bin = static_cast<std::uint32_t>(
          kernels.keys_in_range(candidates.values + run.offset, run.count, bin_lo, bin_last,
                                keys.data() + run.offset, &above));
      run.above = static_cast<std::uint32_t>(above);
    }
  });
  const auto bin_keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseBinKeys,
                                                      candidates.histogram[bin.index]);
  std::size_t in_bin = 0;
  for (const CandidateChunk& chunk : candidates.chunks) {
    for (std::size_t r = 0; r < chunk.run_count; ++r) {
      std::copy_n(keys.data() + chunk.runs[r].offset, chunk.runs[r].in_bin,
                  bin_keys.data() + in_bin);
      in_bin += chunk.runs[r].in_bin;
    }
  }
  const std::size_t rank = k - bin.above;
  const Cut cut = FindCut(kernels, bin_keys, rank, bin_lo, open ? kKeyBits : candidates.shift);

  // Ties at the cut go to the lowest indices: runs take theirs in index order until none are left.
  std::size_t ties_kept = 0;
  const bool ties = cut.count > rank;
  if (ties) {
    ties_kept = rank - kernels.count_at_least(bin_keys.data(), bin_keys.size(), cut.key + 1);
  }
  struct Emission {
    std::size_t at;         // in the slot
    std::size_t ties_kept;  // of this run
    std::size_t ties;
  };
  const auto emissions = WorkspaceArray<Emission>(*context.workspace, kUseSample,
                                                  candidates.chunks.size() * (kChunk / kBlock));
  std::size_t at = 0;
  const std::uint32_t* next = bin_keys.data();
  for (std::size_t c = 0; c < candidates.chunks.size(); ++c) {
    for (std::size_t r = 0; r < candidates.chunks[c].run_count; ++r) {
      const CandidateRun& run = candidates.chunks[c].runs[r];
      const std::size_t reach = kernels.count_at_least(next, run.in_bin, cut.key);
      std::size_t equal = 0;
      std::size_t kept = 0;
      if (ties) {
        equal = reach - kernels.count_at_least(next, run.in_bin, cut.key + 1);
        kept = std::min(equal, ties_kept);
        ties_kept -= kept;
      }
      emissions[c * (kChunk / kBlock) + r] = {at, kept, equal};
      at += run.above + reach - equal + kept;
      next += run.in_bin;
    }
  }
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    for (std::size_t r = 0; r < candidates.chunks[c].run_count; ++r) {
      const CandidateRun& run = candidates.chunks[c].runs[r];
      const Emission& emission = emissions[c * (kChunk / kBlock) + r];
      const std::uint32_t* const indices = candidates.indices + run.offset;
      const float* const values = candidates.values + run.offset;
      std::uint32_t* const out_indices = slot.indices.data + emission.at;
      float* const out_values = slot.values.data + emission.at;
      std::size_t taken = 0;
      if (emission.ties_kept == 0 || emission.ties_kept == emission.ties) {
        const bool none = emission.ties_kept == 0 && emission.ties > 0;
        taken = kernels.emit(indices, values, run.count, cut.key + (none ? 1 : 0), out_indices,
                             out_values);
      } else {
        std::size_t left = emission.ties_kept;
        for (std::size_t j = 0; j < run.count; ++j) {
          const std::uint32_t key = KeyOf(values[j]);
          if (key < cut.key || (key == cut.key && left == 0)) continue;
          if (key == cut.key) --left;
          out_indices[taken] = indices[j];
          out_values[taken] = values[j];
          ++taken;
        }
      }
      ZeroSelected(input, {out_indices, taken});
    }
  });
  slot.count = at;
  return cut.key;
}

// Adds to a slot, which holds the elements with key > tie, the `wanted` first elements that equal
// it. Returns false, the slot and the residual unchanged, where x has fewer.
bool AddTies(const SelectContext& context, const SelectInput& input, std::uint32_t tie,
             std::size_t wanted, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const auto ties = WorkspaceArray<std::uint32_t>(*context.workspace, kUseBinKeys, wanted);
  const auto offsets = WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, kOffsetRoom);
  const float* const x = input.x();
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < input.n && found < wanted; begin += kBlock) {
    const std::size_t size = std::min(kBlock, input.n - begin);
    const std::size_t count = kernels.scan(x + begin, nullptr, size, tie, offsets.data());
    for (std::size_t j = 0; j < count && found < wanted; ++j) {
      const std::size_t i = begin + offsets[j];
      ties[found] = static_cast<std::uint32_t>(i);
      found += static_cast<std::size_t>(KeyOf(x[i]) == tie);
    }
  }
  if (found < wanted) return false;
  // Merge from the back, in place: both lists are sorted by index.
  std::size_t a = slot.count;
  std::size_t b = wanted;
  for (std::size_t to = slot.count + wanted; b > 0; --to) {
    if (a > 0 && slot.indices.data[a - 1] > ties[b - 1]) {
      --a;
      slot.indices.data[to - 1] = slot.indices.data[a];
      slot.values.data[to - 1] = slot.values.data[a];
    } else {
      --b;
      slot.indices.data[to - 1] = ties[b];
      slot.values.data[to - 1] = x[ties[b]];
    }
  }
  slot.count += wanted;
  return true;
}

// Candidates are the elements above `tie`, fewer than k: the rest are ties at it, if there are
// enough of them.
bool SelectWithTies(const SelectContext& context, SelectInput& input, const Candidates& above,
                    std::uint32_t tie, std::size_t k, Slot& slot) {
  SelectInput untouched = input;
  untouched.residual = nullptr;  // nothing is zeroed before it is certain that the ties suffice
  TakeFirst(untouched, above, above.count, slot);
  if (!AddTies(context, input, tie, k - above.count, slot)) return false;
  ZeroSelected(input, {slot.indices.data, slot.count});
  return true;
}

}  // namespace

std::uint32_t SelectLargestAmong(const SelectContext& context, SelectInput& input,
                                 const TensorInfo& info, Candidates candidates, std::size_t k,
                                 Slot& slot) {
  const std::size_t capacity = CandidateCapacity(input.n, k);
  while (!candidates.stored) {
    // The histogram is exact though the candidates were too many to keep: it bounds the next pass.
    const Bin bin = FindBin(candidates, k);
    const std::size_t reach = bin.above + candidates.histogram[bin.index];
    const std::uint32_t lo =
        candidates.lo + (static_cast<std::uint32_t>(bin.index) << candidates.shift);
    if (reach <= capacity || bin.index == kBins) {
      const int shift = bin.index == kBins ? kKeyBits - kFineShift : candidates.shift;
      candidates = Collect(context, input, info, lo, shift, capacity);
    } else if (candidates.shift > 0) {
      candidates =
          Collect(context, input, info, lo, std::max(0, candidates.shift - kFineShift), capacity);
    } else {
      // Bins are single keys: everything in this one is a tie at the k-th magnitude.
      candidates = Collect(context, input, info, lo + 1, kFineShift, capacity);
      SelectWithTies(context, input, candidates, lo, k, slot);
      return lo;
    }
  }
  return SelectStored(context, input, candidates, k, slot);
}

std::uint32_t SelectLargest(const SelectContext& context, SelectInput& input,
                            const TensorInfo& info, std::size_t k, std::uint32_t bound,
                            Slot& slot) {
  if (input.n <= kSmall) return SelectSmall(context, input, info, k, slot);
  const std::size_t capacity = CandidateCapacity(input.n, k);
  if (bound > 0) {
    const Candidates candidates = Collect(context, input, info, bound, kFineShift, capacity);
    if (candidates.stored && candidates.count >= k) {
      return SelectStored(context, input, candidates, k, slot);
    }
    ++context.counters->fallbacks;
    if (candidates.count >= k) {
      return SelectLargestAmong(context, input, info, candidates, k, slot);
    }
  }
  const Sample sample(context, input, info);
  for (double margin = 1;; margin *= 8) {
    const Cut cut = sample.SafeBound(k, margin);
    if (cut.key >= kInfinityKey) ThrowNotFinite(input, info);
    // Too many reach the bound to keep them all: most of them are ties at it. Collect what is
    // larger; if that is fewer than k, ties by index make up the rest.
    const bool crowded =
        capacity < input.n && sample.Expected(cut) > 0.75 * static_cast<double>(capacity);
    const std::uint32_t lo = crowded ? cut.key + 1 : cut.key;
    const Candidates candidates = Collect(context, input, info, lo, kFineShift, capacity);
    if (candidates.count >= k) {
      if (!candidates.stored) ++context.counters->fallbacks;
      return SelectLargestAmong(context, input, info, candidates, k, slot);
    }
    if (crowded && SelectWithTies(context, input, candidates, cut.key, k, slot)) return cut.key;
    ++context.counters->fallbacks;
  }
}

std::uint32_t SampledBound(const SelectContext& context, const SelectInput& input,
                           const TensorInfo& info, std::size_t k, double margin) {
  if (input.n <= kSmall) return 0;
  const Cut cut = Sample(context, input, info).SafeBound(k, margin);
  if (cut.key >= kInfinityKey) ThrowNotFinite(input, info);
  return cut.key;
}

}  // namespace sparfuse
