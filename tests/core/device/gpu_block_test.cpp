// Checks the promises that a block makes to kernels (kernel.hpp) on the emulated device. Also
// checks that the emulated device detects a kernel's mistakes.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/emulated/emulated_launch.hpp"
#include "core/device/launch.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse::gpu {
namespace {

constexpr Device kDevice{DeviceKind::kEmulated, 0};
constexpr Stream kAtOnce{kDevice, nullptr};

struct Collectives {
  static constexpr int kThreads = 96;
  std::uint32_t* sums;      // [blocks]
  std::uint32_t* maxima;    // [blocks]
  std::uint32_t* before;    // [blocks * kThreads]
  std::uint32_t* ballots;   // [blocks * kWarps]
  std::uint32_t* shuffles;  // [blocks * kThreads * 3]

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, NoShared&) const {
    const std::uint32_t value = block.thread() + block.block();
    const std::uint32_t at = block.block() * Block::kThreads + block.thread();
    const std::uint32_t ballot = block.Ballot(block.lane() % 3 == 0);
    const std::uint32_t sum = block.Sum(value);
    const std::uint32_t maximum = block.Max(value);
    std::uint32_t total = 0;
    before[at] = block.ExclusiveSum(value, &total);
    if (block.lane() == 0) ballots[block.block() * Block::kWarps + block.warp()] = ballot;
    if (block.thread() == 0) {
      sums[block.block()] = sum + (sum == total ? 0 : 1);
      maxima[block.block()] = maximum;
    }
    shuffles[3 * at] = block.Shuffle(value, 5);
    shuffles[3 * at + 1] = block.ShuffleUp(value, 2);
    shuffles[3 * at + 2] = block.ShuffleXor(value, 1);
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(Collectives)
namespace {

TEST(GpuBlock, CollectivesSeeTheirBlockOrWarp) {
  constexpr unsigned kBlocks = 5;
  constexpr unsigned kThreads = Collectives::kThreads;
  std::vector<std::uint32_t> sums(kBlocks), maxima(kBlocks), before(kBlocks * kThreads);
  std::vector<std::uint32_t> ballots(kBlocks * 3), shuffles(kBlocks * kThreads * 3);
  Launch(kAtOnce, kBlocks,
         Collectives{sums.data(), maxima.data(), before.data(), ballots.data(), shuffles.data()});
  for (unsigned b = 0; b < kBlocks; ++b) {
    EXPECT_EQ(sums[b], kThreads * (kThreads - 1) / 2 + b * kThreads);
    EXPECT_EQ(maxima[b], kThreads - 1 + b);
    for (unsigned t = 0; t < kThreads; ++t) {
      const unsigned at = b * kThreads + t;
      EXPECT_EQ(before[at], t * (t - 1) / 2 + b * t);
      EXPECT_EQ(shuffles[3 * at], t / 32 * 32 + 5 + b);
      EXPECT_EQ(shuffles[3 * at + 1], (t % 32 < 2 ? t : t - 2) + b);
      EXPECT_EQ(shuffles[3 * at + 2], (t ^ 1) + b);
    }
    for (unsigned w = 0; w < 3; ++w) EXPECT_EQ(ballots[b * 3 + w], 0x49249249u);
  }
}

// The sum of all earlier blocks. Each block waits for the block before it (decoupled look-back in
// its simplest form).
struct ChainedSum {
  static constexpr int kThreads = 32;
  std::uint64_t* sums;  // [blocks]: 2^32 * sum + 1 once known

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    std::uint64_t sum = block.block() + 1;
    if (block.block() > 0) {
      std::uint64_t before = 0;
      while ((before = block.LoadAcquire(&sums[block.block() - 1])) == 0) block.Pause();
      sum += before >> 32;
    }
    block.StoreRelease(&sums[block.block()], sum << 32 | 1);
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(ChainedSum)
namespace {

TEST(GpuBlock, ABlockMayWaitForOneOfLowerNumber) {
  std::vector<std::uint64_t> sums(100);
  Launch(kAtOnce, sums.size(), ChainedSum{sums.data()});
  for (std::uint64_t b = 0; b < 100; ++b) EXPECT_EQ(sums[b] >> 32, (b + 1) * (b + 2) / 2);
}

struct ReversesInShared {
  static constexpr int kThreads = 64;
  struct Shared {
    std::uint32_t values[64];
  };
  std::uint32_t* out;
  bool sync;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    shared.values[block.thread()] = block.thread();
    if (sync) block.Sync();
    out[block.thread()] = shared.values[63 - block.thread()];
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(ReversesInShared)
namespace {

TEST(GpuBlock, AMissingBarrierShows) {
  std::vector<std::uint32_t> reversed(64);
  std::iota(reversed.rbegin(), reversed.rend(), 0u);
  std::vector<std::uint32_t> out(64);
  for (int i = 0; i < 20; ++i) {
    Launch(kAtOnce, 1, ReversesInShared{out.data(), true});
    EXPECT_EQ(out, reversed);
  }
  Launch(kAtOnce, 1, ReversesInShared{out.data(), false});
  EXPECT_NE(out, reversed);
}

struct HalfWaits {
  static constexpr int kThreads = 64;
  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() < 32) block.Sync();
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(HalfWaits)
namespace {

TEST(GpuBlock, ABarrierThatSomeThreadsNeverReachIsAnError) {
  EXPECT_THROW(Launch(kAtOnce, 1, HalfWaits{}), Error);
}

TEST(GpuBlock, NothingRunsWhereThePredicateIsZero) {
  std::vector<std::uint64_t> sums(3);
  std::uint32_t only_if = 0;
  Launch(kAtOnce, 3, ChainedSum{sums.data()}, &only_if);
  EXPECT_EQ(sums[0], 0u);
  only_if = 1;
  Launch(kAtOnce, 3, ChainedSum{sums.data()}, &only_if);
  EXPECT_NE(sums[2], 0u);
}

}  // namespace
}  // namespace sparfuse::gpu
