// Marks distinct random positions on a device: the same positions as MarkDistinct (randomk.hpp).
//
// MarkDistinct draws numbers one after another until `count` differ. Here one round draws the first
// `count` numbers at once, the next as many as are missing, and so on. No round draws more than are
// missing, so that the last round ends at the number with which MarkDistinct ends, or before
// numbers that repeat others.
//
// Cost: one launch for each wide round (a density of 0.01 needs one), and one launch of a single
// block. `count` atomic operations on a bitmap of n / 8 bytes, which stays in L2.
#pragma once

#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/device/kernel.hpp"

namespace sparfuse::gpu {

// The data that the rounds share.
struct Draws {
  RandomStream stream;
  std::uint64_t n;
  std::uint32_t count;    // how many positions to mark
  std::uint32_t* bitmap;  // clear before the first round
  std::uint32_t* drawn;   // [rounds] number of bits that each round set; 0 before

  // Marks the position of draw number `draw`. Returns whether its bit was clear.
  SPARFUSE_DEVICE bool Mark(const auto& block, std::uint64_t draw) const {
    const std::uint64_t at = stream.Below(n, draw);
    const std::uint32_t bit = 1u << (at % 32);
    return (block.AtomicOr(bitmap + at / 32, bit) & bit) == 0;
  }

  // Returns how many positions the first `rounds` rounds left unmarked. *first: the number of the
  // next draw.
  SPARFUSE_DEVICE std::uint32_t MissingAfter(unsigned rounds, std::uint64_t* first) const {
    std::uint32_t missing = count;
    *first = 0;
    for (unsigned r = 0; r < rounds; ++r) {
      *first += missing;
      missing -= drawn[r];
    }
    return missing;
  }
};

struct DrawRound {
  static constexpr int kThreads = 256;
  static constexpr unsigned kDraws = 4;  // of a thread

  Draws draws;
  unsigned round;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    std::uint64_t first = 0;
    const std::uint32_t missing = draws.MissingAfter(round, &first);
    const std::uint64_t stride = std::uint64_t{block.blocks()} * kThreads;
    std::uint64_t i = std::uint64_t{block.block()} * kThreads + block.thread();
    std::uint32_t marked = 0;
    for (; i < missing; i += kDraws * stride) {
      bool fresh[kDraws];
      for (unsigned d = 0; d < kDraws; ++d) {
        fresh[d] = i + d * stride < missing && draws.Mark(block, first + i + d * stride);
      }
      for (unsigned d = 0; d < kDraws; ++d) marked += fresh[d] ? 1 : 0;
    }
    marked = block.Sum(marked);
    if (block.thread() == 0 && marked > 0) block.AtomicAdd(draws.drawn + round, marked);
  }
};

// Does all remaining rounds in one block.
struct DrawRest {
  static constexpr int kThreads = 512;

  Draws draws;
  unsigned rounds;  // done

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    std::uint64_t first = 0;
    std::uint32_t missing = draws.MissingAfter(rounds, &first);
    while (missing > 0) {
      std::uint32_t marked = 0;
      for (std::uint32_t i = block.thread(); i < missing; i += kThreads) {
        marked += draws.Mark(block, first + i) ? 1 : 0;
      }
      first += missing;
      missing -= block.Sum(marked);
    }
  }
};

}  // namespace sparfuse::gpu
