// Finds the key of a rank by many blocks, in the phases of a launch: by a histogram in global
// memory of each of three digits, of 11, 10 and 10 bits, of the keys with the prefix that those
// before have found. rank_kernels.hpp is for one block.
#pragma once

#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr unsigned kKeyDigits = 3;
SPARFUSE_DEVICE unsigned BitsOfDigit(unsigned digit) { return digit == 0 ? 11 : 10; }

struct KeyPrefix {
  std::uint32_t prefix;
  std::uint32_t rank;  // among the elements that have the prefix
};

// What the histograms of the first `digits` digits say of the key of a rank: that of all is the
// key. Called by all threads of a block. bins: [kKeyDigits * kDigits], zero before the first phase.
template <class Block>
SPARFUSE_DEVICE KeyPrefix FindPrefix(Block& block, BinShared& shared, const std::uint32_t* bins,
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

// Adds those of this block's elements [begin, end) that have a prefix to the histogram of the next
// digit. x_at(i): element i. of_block: [kDigits], shared.
template <class Block, class XAt>
SPARFUSE_DEVICE void AddDigits(Block& block, std::uint32_t* of_block, std::uint32_t* bins,
                               unsigned digit, std::uint32_t prefix, std::uint64_t begin,
                               std::uint64_t end, const XAt& x_at) {
  constexpr unsigned kEach = 8;
  constexpr std::uint32_t kAll = 0xffffffffu;
  const unsigned shift = digit == 0 ? 20 : digit == 1 ? 10 : 0;
  const std::uint32_t digits = 1u << BitsOfDigit(digit);
  for (unsigned b = block.thread(); b < digits; b += Block::kThreads) of_block[b] = 0;
  block.Sync();
  for (std::uint64_t i = begin; i < end; i += Block::kThreads * kEach) {
    const std::uint64_t mine = i + block.thread();
    float x[kEach];
    for (unsigned e = 0; e < kEach; ++e) {
      x[e] = x_at(mine + e * Block::kThreads < end ? mine + e * Block::kThreads : i);
    }
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t key = KeyOf(x[e]);
      const bool in =
          mine + e * Block::kThreads < end && key >> shift >> BitsOfDigit(digit) == prefix;
      const std::uint32_t own = key >> shift & (digits - 1);
      // Who asks has many equal elements: a warp of equals adds once.
      const std::uint32_t first = block.Shuffle(in ? own : kDigits, 0);
      if (block.Ballot(in && own == first) == kAll) {
        if (block.lane() == 0) block.AtomicAdd(&of_block[own], std::uint32_t{kWarp});
      } else if (in) {
        block.AtomicAdd(&of_block[own], 1u);
      }
    }
  }
  block.Sync();
  for (unsigned b = block.thread(); b < digits; b += Block::kThreads) {
    if (of_block[b] > 0) block.AtomicAdd(&bins[digit * kDigits + b], of_block[b]);
  }
}

}  // namespace sparfuse::gpu
