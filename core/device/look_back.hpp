// Sums over the blocks before this one, while they run: a prefix in one pass over memory.
//
// Source: D. Merrill, M. Garland, "Single-pass parallel prefix scan with decoupled look-back",
// NVIDIA technical report, 2016.
#pragma once

#include <bit>
#include <cstdint>

#include "core/device/kernel.hpp"

namespace sparfuse::gpu {

// What a block has told the ones after it: its own number in the low half, or with kOfAll that of
// all blocks up to it. Zero: nothing yet.
inline constexpr std::uint64_t kOfBlock = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kOfAll = std::uint64_t{2} << 32;

// The sum of `own` over the blocks before this one, to every thread. All threads call it, with
// equal `own`. What those blocks wrote besides is not seen.
//
//   told      [blocks], zero before the kernel.
//   scratch   of the block's shared memory.
template <class Block>
SPARFUSE_DEVICE std::uint32_t SumByLookBack(Block& block, std::uint64_t* told, std::uint32_t own,
                                            std::uint32_t* scratch) {
  const unsigned self = block.block();
  if (block.warp() == 0) {
    std::uint32_t before = 0;
    if (block.lane() == 0) block.StoreRelaxed(told + self, (self == 0 ? kOfAll : kOfBlock) | own);
    // Lane l looks at the block l + 1 before the last that has not been looked at.
    for (unsigned behind = 0; behind < self; behind += kWarp) {
      std::uint64_t word = kOfAll;
      if (behind + block.lane() < self) {
        const std::uint64_t* const at = told + (self - 1 - behind - block.lane());
        while ((word = block.LoadRelaxed(at)) == 0) block.Pause();
      }
      const std::uint32_t of_all = block.Ballot((word & kOfAll) != 0);
      const auto last = static_cast<unsigned>(of_all == 0 ? kWarp : std::countr_zero(of_all));
      std::uint32_t sum = block.lane() <= last ? static_cast<std::uint32_t>(word) : 0;
      for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) sum += block.ShuffleXor(sum, mask);
      before += sum;
      if (of_all != 0) break;
    }
    if (block.lane() == 0) {
      if (self > 0) block.StoreRelaxed(told + self, kOfAll | (before + own));
      *scratch = before;
    }
  }
  block.Sync();
  return *scratch;
}

}  // namespace sparfuse::gpu
