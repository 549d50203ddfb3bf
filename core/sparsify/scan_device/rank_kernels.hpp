// Finds the element of a given rank, by one block or by many. The kernels of scan_kernels.hpp share
// these functions.
//
// The search takes digits of 11 bits from the top. A histogram in shared memory gives the digit of
// the ranked element, and the next histogram counts only elements with that prefix. The search ends
// when all elements of a prefix are taken: for a continuous distribution after the second digit.
// (This is the radix selection of K. A. Kumar, T. Alabi et al., "Fast k-selection algorithms for
// graphics processing units", JEA 17, 2012. RAFT's select_k and CUB's top-k run many-block forms of
// it on whole tensors. Here one block only searches a sample, a small tensor, or one bin of a
// histogram.)
#pragma once

#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan_device/device_source.hpp"

namespace sparfuse::gpu {

inline constexpr int kDigitBits = 11;
inline constexpr std::uint32_t kDigits = 1u << kDigitBits;

struct BinShared {
  std::uint32_t bin;
  std::uint32_t above;
  std::uint32_t inside;
};

// The bin that contains the element of a rank.
struct RankedBin {
  std::uint32_t bin;
  std::uint32_t above;   // elements in the bins above it
  std::uint32_t inside;  // 0: all bins together hold fewer than `rank`
};

// Called by all threads of a block. bins: [count], in shared or global memory, complete and visible
// to all threads. rank >= 1.
SPARFUSE_DEVICE RankedBin FindRankedBin(auto& block, BinShared& shared, const std::uint32_t* bins,
                                        std::uint32_t count, std::uint32_t rank) {
  const std::uint32_t each = (count + block.kThreads - 1) / block.kThreads;
  const std::uint32_t first = block.thread() * each;  // from the top
  std::uint32_t sum = 0;
  for (std::uint32_t i = first; i < first + each && i < count; ++i) sum += bins[count - 1 - i];
  std::uint32_t total = 0;
  std::uint32_t above = block.ExclusiveSum(sum, &total);
  if (above < rank && rank - above <= sum) {
    std::uint32_t i = first;
    while (rank - above > bins[count - 1 - i]) above += bins[count - 1 - i++];
    shared = {count - 1 - i, above, bins[count - 1 - i]};
  }
  if (block.thread() == 0 && total < rank) shared = {0, 0, 0};
  block.Sync();
  const RankedBin found{shared.bin, shared.above, shared.inside};
  block.Sync();
  return found;
}

struct RankShared {
  std::uint32_t bins[kDigits];
  BinShared bin;
};

// The largest cut that at least `rank` elements of a set reach. Exactly `rank` elements reach it
// unless equal elements straddle it. All threads of a block call it; for_each(f) calls f(element)
// for the calling thread's elements, which are below 2^bits. Only cuts at multiples of 2^coarse are
// considered. Precondition: 1 <= rank <= number of elements.
SPARFUSE_DEVICE std::uint64_t CutOfRank(auto& block, RankShared& shared, int bits, int coarse,
                                        std::uint32_t rank, const auto& for_each) {
  std::uint64_t prefix = 0;
  int shift = bits;
  while (shift > coarse) {
    const int before = shift;
    shift = shift - coarse > kDigitBits ? shift - kDigitBits : coarse;
    const std::uint32_t digits = 1u << (before - shift);
    for (std::uint32_t b = block.thread(); b < digits; b += block.kThreads) shared.bins[b] = 0;
    block.Sync();
    for_each([&](std::uint64_t element) {
      if (element >> before != prefix) return;
      block.AtomicAdd(&shared.bins[static_cast<std::uint32_t>(element >> shift) & (digits - 1)],
                      1u);
    });
    block.Sync();
    const RankedBin found = FindRankedBin(block, shared.bin, shared.bins, digits, rank);
    prefix = prefix << (before - shift) | found.bin;
    rank -= found.above;
    if (found.inside <= rank) break;
  }
  return prefix << shift;
}

// Returns the key of a rank: the smallest key that reaches the rank's cut. The keys are below
// 2^bits; for_each is CutOfRank's.
SPARFUSE_DEVICE std::uint32_t KeyOfRank(auto& block, RankShared& shared, int bits,
                                        std::uint32_t rank, const auto& for_each) {
  const auto cut = static_cast<std::uint32_t>(CutOfRank(block, shared, bits, 0, rank, for_each));
  std::uint32_t smallest = kNoKey;
  for_each([&](std::uint64_t element) {
    const auto key = static_cast<std::uint32_t>(element);
    if (key >= cut && key < smallest) smallest = key;
  });
  return kNoKey - block.Max(kNoKey - smallest);
}

// Waits until blocks of lower numbers have set their flags. All threads of a block call it, and
// then see the earlier writes of those blocks.
SPARFUSE_DEVICE void Await(auto& block, std::uint32_t* flags, std::uint32_t count) {
  for (std::uint32_t i = block.thread(); i < count; i += block.kThreads) {
    while (block.LoadAcquire(flags + i) == 0) block.Pause();
  }
  block.Sync();
}

// Sets the flag. Threads that await it see the earlier writes of all threads of the block.
SPARFUSE_DEVICE void Announce(auto& block, std::uint32_t* flag) {
  block.Sync();
  if (block.thread() == 0) block.StoreRelease(flag, 1u);
}

// Announces this block's value and returns the sum of the values of the blocks before. Each block
// adds up by itself, so that it waits for values but for no sum. sums: [blocks], zero before; value
// < 2^63, the same from all threads. Other writes of those blocks need not be visible afterwards.
SPARFUSE_DEVICE std::uint64_t SumBefore(auto& block, std::uint64_t* sums, std::uint32_t at,
                                        std::uint64_t value) {
  constexpr std::uint64_t kSet = std::uint64_t{1} << 63;
  if (block.thread() == 0) block.StoreRelaxed(sums + at, kSet | value);
  std::uint64_t sum = 0;
  for (std::uint32_t i = block.thread(); i < at; i += block.kThreads) {
    std::uint64_t other = 0;
    while ((other = block.LoadRelaxed(sums + i)) == 0) block.Pause();
    sum += other & ~kSet;
  }
  return block.Sum(sum);
}

// The functions below find the key of a rank by many blocks, in the phases of a launch. Each phase
// makes a histogram in global memory of one of three digits, of 11, 10 and 10 bits. It counts the
// keys with the prefix that the digits before have found.
inline constexpr unsigned kKeyDigits = 3;
SPARFUSE_DEVICE unsigned BitsOfDigit(unsigned digit) { return digit == 0 ? 11 : 10; }

struct KeyPrefix {
  std::uint32_t prefix;
  std::uint32_t rank;  // among the elements that have the prefix
};

// The prefix of the key of a rank, from the histograms of the first `digits` digits; with all
// digits the prefix is the key. Called by all threads of a block. bins: [kKeyDigits * kDigits],
// zero before the first phase.
SPARFUSE_DEVICE KeyPrefix FindPrefix(auto& block, BinShared& shared, const std::uint32_t* bins,
                                     unsigned digits, std::uint32_t rank) {
  KeyPrefix of = {0, rank};
  for (unsigned digit = 0; digit < digits; ++digit) {
    const RankedBin found =
        FindRankedBin(block, shared, bins + digit * kDigits, 1u << BitsOfDigit(digit), of.rank);
    of.prefix = of.prefix << BitsOfDigit(digit) | found.bin;
    of.rank -= found.above;
  }
  return of;
}

// Adds those of this block's elements [begin, end) that have the prefix to the histogram of the
// next digit. x_at(i): element i. of_block: [kDigits], shared.
SPARFUSE_DEVICE void AddDigits(auto& block, std::uint32_t* of_block, std::uint32_t* bins,
                               unsigned digit, std::uint32_t prefix, std::uint64_t begin,
                               std::uint64_t end, const auto& x_at) {
  constexpr unsigned kEach = 8;
  constexpr std::uint32_t kAll = 0xffffffffu;
  const unsigned shift = digit == 0 ? 20 : digit == 1 ? 10 : 0;
  const std::uint32_t digits = 1u << BitsOfDigit(digit);
  for (unsigned b = block.thread(); b < digits; b += block.kThreads) of_block[b] = 0;
  block.Sync();
  for (std::uint64_t i = begin; i < end; i += block.kThreads * kEach) {
    const std::uint64_t mine = i + block.thread();
    float x[kEach];
    for (unsigned e = 0; e < kEach; ++e) {
      x[e] = x_at(mine + e * block.kThreads < end ? mine + e * block.kThreads : i);
    }
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t key = KeyOf(x[e]);
      const bool in =
          mine + e * block.kThreads < end && key >> shift >> BitsOfDigit(digit) == prefix;
      const std::uint32_t own = key >> shift & (digits - 1);
      // These passes run mostly for tensors with many equal elements: a warp of equals adds once.
      const std::uint32_t first = block.Shuffle(in ? own : kDigits, 0);
      if (block.Ballot(in && own == first) == kAll) {
        if (block.lane() == 0) block.AtomicAdd(&of_block[own], std::uint32_t{kWarp});
      } else if (in) {
        block.AtomicAdd(&of_block[own], 1u);
      }
    }
  }
  block.Sync();
  for (unsigned b = block.thread(); b < digits; b += block.kThreads) {
    if (of_block[b] > 0) block.AtomicAdd(&bins[digit * kDigits + b], of_block[b]);
  }
}

}  // namespace sparfuse::gpu
