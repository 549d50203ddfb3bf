// Selects the k largest in one pass, after the radix-free selection by sampled bound of R. W. Floyd
// & R. L. Rivest, "Expected time bounds for selection", CACM 18(3), 1975. A sample gives a bound
// that is safely too low, one pass collects the elements that reach it, and these few are cut
// exactly.
#include "core/sparsify/scan/largest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/cpu.hpp"
#include "core/sparsify/scan/sample.hpp"

namespace sparfuse {
namespace {

constexpr int kKeyBits = 31;
constexpr std::size_t kSmall = 8192;  // below it, counting over all keys beats sampling
constexpr int kCoarseBits = 12;       // of a key: half a thousandth of the magnitude
constexpr int kKthBits = 26;          // of a key: eight octaves
constexpr int kBracketBits = 6;

void ZeroSelected(const SelectInput& input, std::span<const std::uint32_t> indices) {
  if (input.residual == nullptr) return;
  for (const std::uint32_t i : indices) input.residual[i] = 0.0f;
}

// Selects from a small tensor, whose keys all fit in L1 or L2, by counting over them bit by bit.
std::uint32_t SelectSmall(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          std::size_t k, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  if (input.pending) {
    input.BringOver();
    kernels.add(input.gradient, input.residual, input.n);
    input.Added();
  }
  const float* const x = input.x();
  const auto keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseKeys, input.n);
  if (kernels.make_keys(x, input.n, keys.data()) >= kInfinityKey) ThrowNotFinite(input, info);
  const Cut cut = FindCut(kernels, keys, k, 0, kKeyBits);
  // If more than k reach the cut, the surplus are ties at it, and the last ties are dropped.
  const std::size_t surplus = cut.count - k;
  std::size_t ties_kept = 0;
  if (surplus > 0) {
    ties_kept = k - kernels.count_at_least(keys.data(), input.n, cut.key + 1);
  }
  const auto offsets = WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, kOffsetRoom);
  std::size_t taken = 0;
  for (std::size_t begin = 0; begin < input.n; begin += kBlock) {
    const std::size_t size = std::min(kBlock, input.n - begin);
    const std::size_t count =
        kernels.scan(x + begin, nullptr, nullptr, size, cut.key, offsets.data());
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
  // k: the number of elements that must reach the bound.
  Sample(const SelectContext& context, const SelectInput& input, const TensorInfo& info,
         std::size_t k)
      : kernels_(SelectKernelsFor(ActiveIsa())), n_(input.n) {
    // With s sampled elements, about 4 n sqrt(k / n / s) candidates beyond k pass the bound. A
    // candidate takes twice the time of a sampled element: `best` minimises the sum of both.
    const double best = 2.5 * std::cbrt(static_cast<double>(n_) * static_cast<double>(k));
    const std::size_t wanted = static_cast<std::size_t>(std::clamp(best, 2048.0, 65536.0)) / kLine;
    keys_ = WorkspaceArray<std::uint32_t>(*context.workspace, kUseSample, wanted * kLine);
    ForSampledLines(n_, wanted, info, [&](std::size_t i, std::size_t at) {
      if (input.pending) {
        for (std::size_t j = 0; j < kLine; ++j) {
          keys_[i * kLine + j] = KeyOf(input.gradient[at + j] + input.residual[at + j]);
        }
      } else {
        const float* const x = input.x() + at;
        for (std::size_t j = 0; j < kLine; ++j) keys_[i * kLine + j] = KeyOf(x[j]);
      }
    });
  }

  // Returns a bound that k elements of x reach, except in one case of some 30,000 (four standard
  // deviations of a binomial) if a line's elements are independent; `margin` widens that. The bound
  // is coarse, unless more than `crowd` elements are expected to reach it: then many may equal it.
  Cut SafeBound(std::size_t k, double margin, double crowd) const {
    const double expected = Expected(k);
    const double rank = margin * (expected + 4 * std::sqrt(expected) + 4);
    if (rank >= static_cast<double>(keys_.size())) return {0, keys_.size()};
    const auto whole = static_cast<std::size_t>(rank);
    const Cut cut = FindCut(kernels_, keys_, whole, 0, kKeyBits, kCoarseBits);
    return Reaching(cut) > crowd ? FindCut(kernels_, keys_, whole, cut.key, kCoarseBits) : cut;
  }

  // Returns about the k-th largest key of x, for which `lo` is a safe bound: `guess`, which is
  // better than a sample, unless the sample speaks against it (two standard deviations).
  std::uint32_t KthKey(std::size_t k, std::uint32_t lo, std::uint32_t guess) const {
    const double expected = Expected(k);
    if (guess != kNoKey) {
      const std::size_t reach = kernels_.count_at_least(keys_.data(), keys_.size(), guess);
      const double miss = std::abs(static_cast<double>(reach) - expected);
      if (miss <= 2 * std::sqrt(expected)) return guess;
    }
    const auto rank = static_cast<std::size_t>(std::max(1.0, expected));
    return FindCut(kernels_, keys_, rank, lo, kKthBits, kCoarseBits).key;
  }

  // Returns the expected number of elements of x that reach a cut of the sample.
  double Reaching(const Cut& cut) const {
    return static_cast<double>(cut.count) / static_cast<double>(keys_.size()) *
           static_cast<double>(n_);
  }

 private:
  // Returns how many of the k largest elements the sample is expected to hold.
  double Expected(std::size_t k) const {
    return static_cast<double>(k) * static_cast<double>(keys_.size()) / static_cast<double>(n_);
  }

  const SelectKernels& kernels_;
  std::size_t n_;
  std::span<std::uint32_t> keys_;
};

struct Bin {
  std::size_t index = 0;
  std::size_t above = 0;  // elements in the bins above it
};

// Returns the bin that holds the k-th largest candidate.
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

// A bracket of keys, first and last included.
struct KeyRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Returns a bracket that most likely holds the key of this rank and few others. It is taken from an
// even sample of the candidates.
KeyRange LikelyRange(const SelectKernels& kernels, const Candidates& candidates, std::size_t rank) {
  constexpr std::size_t kSampled = 1024;
  if (candidates.count <= 4 * kSampled) return {candidates.lo, candidates.largest};
  std::uint32_t keys[kSampled];
  for (std::size_t i = 0; i < kSampled; ++i) {
    keys[i] = KeyOf(candidates.values[i * candidates.count / kSampled]);
  }
  const double fraction = static_cast<double>(rank) / static_cast<double>(candidates.count);
  const double expected = fraction * kSampled;
  const double reach = 3 * std::sqrt(expected * (1 - fraction)) + 2;
  const int bits = std::bit_width(candidates.largest - candidates.lo);
  KeyRange bracket{candidates.lo, candidates.largest};
  if (expected + reach < kSampled) {
    const auto low = static_cast<std::size_t>(expected + reach);
    bracket.first = FindCut(kernels, keys, low, candidates.lo, bits, kBracketBits).key;
  }
  if (expected - reach >= 1) {
    const auto high = static_cast<std::size_t>(expected - reach);
    bracket.last = FindCut(kernels, keys, high, bracket.first, bits, kBracketBits).key;
    bracket.last += (1u << kBracketBits) - 1;
  }
  return bracket;
}

// KeysInBracket writes the keys in the bracket, those of a run to keys + its offset. It writes each
// run's counts inside and above the bracket to its segment, and returns their sums.
struct Counted {
  std::size_t inside = 0;
  std::size_t above = 0;
};

Counted KeysInBracket(const SelectContext& context, const Candidates& candidates,
                      const KeyRange& bracket, std::uint32_t* keys) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    for (CandidateSegment& run : candidates.chunks[c].runs()) {
      std::size_t above = 0;
      run.in_bin = static_cast<std::uint32_t>(
          kernels.keys_in_range(candidates.values + run.offset, run.count, bracket.first,
                                bracket.last, keys + run.offset, &above));
      run.above = static_cast<std::uint32_t>(above);
    }
  });
  Counted counted;
  for (const CandidateSegment& run : candidates.runs()) {
    counted.inside += run.in_bin;
    counted.above += run.above;
  }
  return counted;
}

// The surroundings of the k-th largest stored candidate.
struct KthCut {
  std::span<const std::uint32_t> keys;  // in the bracket around it, in index order
  std::size_t rank = 0;                 // of the k-th largest, among the keys
  Cut cut;                              // of the keys
};

KthCut FindKth(const SelectContext& context, const Candidates& candidates, std::size_t k) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const auto keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseKeys, candidates.room);
  KeyRange bracket = LikelyRange(kernels, candidates, k);
  Counted counted = KeysInBracket(context, candidates, bracket, keys.data());
  if (counted.above >= k || counted.above + counted.inside < k) {
    bracket = {candidates.lo, candidates.largest};
    counted = KeysInBracket(context, candidates, bracket, keys.data());
  }
  const auto inside =
      WorkspaceArray<std::uint32_t>(*context.workspace, kUseBinKeys, counted.inside);
  std::size_t at = 0;
  for (const CandidateSegment& run : candidates.runs()) {
    std::copy_n(keys.data() + run.offset, run.in_bin, inside.data() + at);
    at += run.in_bin;
  }
  const std::size_t rank = k - counted.above;
  const int bits = std::bit_width(bracket.last - bracket.first);
  return {inside, rank, FindCut(kernels, inside, rank, bracket.first, bits)};
}

// Cuts candidates exactly that are all in memory.
std::uint32_t SelectStored(const SelectContext& context, SelectInput& input,
                           const Candidates& candidates, std::size_t k, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  if (candidates.count == k) {
    TakeFirst(input, candidates, k, slot);
    return candidates.lo;
  }
  const auto [keys, rank, cut] = FindKth(context, candidates, k);

  // Ties at the cut go to the lowest indices: segments take theirs in index order.
  std::size_t ties_kept = 0;
  const bool ties = cut.count > rank;
  if (ties) ties_kept = rank - kernels.count_at_least(keys.data(), keys.size(), cut.key + 1);
  const std::uint32_t sure = cut.key + (ties ? 1 : 0);  // keys from here on are sent
  struct Emission {
    std::size_t at;         // in the slot
    std::size_t sure;       // sent elements of this run, ties excluded
    std::size_t ties_kept;  // of this run
    std::size_t ties;
  };
  const auto emissions = WorkspaceArray<Emission>(*context.workspace, kUseEmissions,
                                                  candidates.chunks.size() * kMostRuns);
  std::size_t at = 0;
  const std::uint32_t* next = keys.data();
  for (std::size_t c = 0; c < candidates.chunks.size(); ++c) {
    Emission* emission = emissions.data() + c * kMostRuns;
    for (const CandidateSegment& run : candidates.chunks[c].runs()) {
      const std::size_t reach = kernels.count_at_least(next, run.in_bin, cut.key);
      std::size_t equal = 0;
      std::size_t kept = 0;
      if (ties) {
        equal = reach - kernels.count_at_least(next, run.in_bin, cut.key + 1);
        kept = std::min(equal, ties_kept);
        ties_kept -= kept;
      }
      *emission++ = {at, run.above + reach - equal, kept, equal};
      at += run.above + reach - equal + kept;
      next += run.in_bin;
    }
  }
  context.pool->ParallelFor(candidates.chunks.size(), [&](std::size_t c, int) {
    const Emission* next_emission = emissions.data() + c * kMostRuns;
    for (const CandidateSegment& run : candidates.chunks[c].runs()) {
      const Emission& emission = *next_emission++;
      const std::uint32_t* const indices = candidates.indices + run.offset;
      const float* const values = candidates.values + run.offset;
      std::uint32_t* const out_indices = slot.indices.data + emission.at;
      float* const out_values = slot.values.data + emission.at;
      Settle(input, candidates, run, sure);
      std::size_t taken = 0;
      if (emission.ties_kept == 0) {
        kernels.emit(indices, values, run.count, sure, emission.sure, out_indices, out_values);
      } else if (emission.ties_kept == emission.ties) {
        taken = kernels.emit(indices, values, run.count, cut.key, emission.sure + emission.ties,
                             out_indices, out_values);
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
      ZeroSelected(input, {out_indices, taken});  // ties are not settled
    }
  });
  slot.count = at;
  return cut.key;
}

// Adds the first `wanted` elements that equal `tie` to a slot that holds the elements with key >
// tie. Returns false, with the slot and the residual unchanged, if x has fewer.
bool AddTies(const SelectContext& context, const SelectInput& input, std::uint32_t tie,
             std::size_t wanted, Slot& slot) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const auto ties = WorkspaceArray<std::uint32_t>(*context.workspace, kUseBinKeys, wanted);
  const auto offsets = WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, kOffsetRoom);
  const float* const x = input.x();
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < input.n && found < wanted; begin += kBlock) {
    const std::size_t size = std::min(kBlock, input.n - begin);
    const std::size_t count = kernels.scan(x + begin, nullptr, nullptr, size, tie, offsets.data());
    for (std::size_t j = 0; j < count && found < wanted; ++j) {
      const std::size_t i = begin + offsets[j];
      ties[found] = static_cast<std::uint32_t>(i);
      found += static_cast<std::size_t>(KeyOf(x[i]) == tie);
    }
  }
  if (found < wanted) return false;
  // Merges from the back, in place: both lists are sorted by index.
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

// The candidates are the elements above `tie`, fewer than k. Ties fill up to k, if they suffice.
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
  if (candidates.ties_below > 0 && candidates.count < k) {
    const std::uint32_t tie = candidates.lo - 1;
    SelectWithTies(context, input, candidates, tie, k, slot);
    return tie;
  }
  while (!candidates.stored) {
    // The histogram is exact even if candidates were too many to store: it bounds the next pass.
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
      // Bins are single keys: all elements of this one are ties at the k-th magnitude.
      candidates = Collect(context, input, info, lo + 1, kFineShift, capacity);
      SelectWithTies(context, input, candidates, lo, k, slot);
      return lo;
    }
  }
  return SelectStored(context, input, candidates, k, slot);
}

std::uint32_t SelectLargest(const SelectContext& context, SelectInput& input,
                            const TensorInfo& info, std::size_t k, std::uint32_t bound, Slot& slot,
                            std::uint32_t kth) {
  if (input.n <= kSmall) return SelectSmall(context, input, info, k, slot);
  const std::size_t capacity = CandidateCapacity(input.n, k);
  if (bound > 0) {
    const Candidates candidates =
        Collect(context, input, info, bound, kFineShift, capacity, nullptr, kth);
    if (candidates.stored && candidates.count >= k) {
      return SelectStored(context, input, candidates, k, slot);
    }
    ++context.counters->fallbacks;
    if (candidates.count >= k) {
      return SelectLargestAmong(context, input, info, candidates, k, slot);
    }
    Restore(input, candidates);
  }
  const Sample sample(context, input, info, k);
  for (double margin = 1;; margin *= 8) {
    const double crowd =
        capacity < input.n ? 0.75 * static_cast<double>(capacity) : static_cast<double>(input.n);
    const Cut cut = sample.SafeBound(k, margin, crowd);
    if (cut.key >= kInfinityKey) ThrowNotFinite(input, info);
    // Too many reach the bound to store them all, and most are ties at it. Collects the larger
    // ones; if they are fewer than k, ties by index make up the rest.
    const bool crowded = sample.Reaching(cut) > crowd;
    const std::uint32_t lo = crowded ? cut.key + 1 : cut.key;
    kth = crowded || input.residual == nullptr ? kNoKey : sample.KthKey(k, lo, kth);
    const Candidates candidates =
        Collect(context, input, info, lo, kFineShift, capacity, nullptr, kth);
    if (candidates.count >= k) {
      if (!candidates.stored) ++context.counters->fallbacks;
      return SelectLargestAmong(context, input, info, candidates, k, slot);
    }
    if (crowded && SelectWithTies(context, input, candidates, cut.key, k, slot)) return cut.key;
    Restore(input, candidates);
    ++context.counters->fallbacks;
  }
}

Bound SampledBound(const SelectContext& context, const SelectInput& input, const TensorInfo& info,
                   std::size_t k, double margin) {
  if (input.n <= kSmall) return {};
  const Sample sample(context, input, info, k);
  const double crowd = 2 * static_cast<double>(CandidateCapacity(input.n, k));
  const Cut cut = sample.SafeBound(k, margin, crowd);
  if (cut.key >= kInfinityKey) ThrowNotFinite(input, info);
  const bool crowded = sample.Reaching(cut) > crowd;
  const bool guess = input.residual != nullptr && !crowded;
  return {cut.key, guess ? sample.KthKey(k, cut.key, kNoKey) : kNoKey, crowded};
}

std::uint32_t KeyOfRank(const SelectContext& context, const Candidates& candidates,
                        std::size_t rank) {
  const KthCut kth = FindKth(context, candidates, rank);
  std::uint32_t smallest = kNoKey;  // of the keys from the cut on; the cut itself may not be a key
  for (const std::uint32_t key : kth.keys) {
    if (key >= kth.cut.key) smallest = std::min(smallest, key);
  }
  return smallest;
}

}  // namespace sparfuse
