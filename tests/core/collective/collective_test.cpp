// Tests core's collectives and the control collectives by hand. The laws of every registered
// collective are tested in tests/baselines/collective_conformance_test.cpp.
#include "core/collective/collective.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

constexpr int kTag = 32;

// The payload of `rank`: `count` elements at every third index from `rank` on, with integer values.
std::vector<std::byte> MakePayload(int rank, std::size_t count) {
  std::vector<std::byte> payload(count * kSparseElementBytes);
  for (std::size_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint32_t>(3 * i + static_cast<std::size_t>(rank));
    const auto value = static_cast<float>(static_cast<std::size_t>(rank + 1) * (i + 1));
    std::memcpy(payload.data() + i * sizeof index, &index, sizeof index);
    std::memcpy(payload.data() + count * sizeof index + i * sizeof value, &value, sizeof value);
  }
  return payload;
}

TEST(Collectives, RingGivesEqualBitsOnAllRanksWhereOrderMatters) {
  constexpr int kRanks = 5;
  std::vector<std::vector<float>> results(kRanks);
  RunRanks(kRanks, 1, kDeadline, [&](ProgressLoop& loop) {
    auto& data = results[static_cast<std::size_t>(loop.rank())];
    data.resize(10'007);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = 1.0f / static_cast<float>(1 + i * 7 + static_cast<std::size_t>(loop.rank()));
    }
    SumCounted(loop, *CoreCollective("ring-allreduce"), data);
  });
  for (const auto& result : results) {
    ASSERT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

TEST(Collectives, RoundsOfAThousandRanksAreCompressed) {
  for (const CollectiveDescriptor& each : CoreCollectives()) {
    const Topology topology{1024, 8};
    const auto collective = CoreCollective(each.name);
    const ExchangeSizes sizes =
        ExpectedSizes(*collective, {}, std::vector<std::uint64_t>(1024, 8'000'000), {}, topology);
    const RoundPlan plan = collective->Rounds(sizes, topology);
    EXPECT_LE(plan.rounds.size(), 8u) << each.name;
  }
}

// 5 elements on 2 ranks: chunks of 3 and 2, two steps of the larger chunk. Rank 0 sends chunks 0
// and 1.
TEST(Collectives, RingRoundsByHand) {
  const RoundPlan plan =
      CoreCollective("ring-allreduce")->Rounds(SizesOf({20, 20}), Topology{2, 1});
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].bytes, 12u);
  EXPECT_EQ(plan.rounds[0][Work::kAdd], 3u);
  EXPECT_EQ(plan.rounds[1].bytes, 12u);
  EXPECT_EQ(plan.rounds[1][Work::kAdd], 0u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 2, 20, 20}));
}

TEST(Collectives, SparseAllGatherRoundsByHand) {
  const RoundPlan plan =
      CoreCollective("sparse-allgather")->Rounds(SizesOf({8, 80, 0}), Topology{3, 1});
  ASSERT_EQ(plan.rounds.size(), 1u);
  EXPECT_EQ(plan.rounds[0].repeat, 2u);
  EXPECT_EQ(plan.rounds[0].bytes, 160u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 2, 8, 80}));
  EXPECT_EQ(plan.per_rank[1], (Traffic{2, 2, 88, 8}));
  EXPECT_EQ(plan.per_rank[2], (Traffic{2, 2, 80, 88}));
}

TEST(Collectives, NativeIsRefusedWhereTheBackendHasNone) {
  RunRanks(2, 1, kDeadline, [](ProgressLoop& loop) {
    std::vector<float> data(4);
    ExpectError(FailureKind::kUnsupported, {},
                [&] { SumCounted(loop, *CoreCollective("native-allreduce"), data); });
  });
}

TEST(Collectives, PayloadAboveTheCapacityIsRefused) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    const auto own = MakePayload(0, 3);
    std::vector<std::byte> gathered(64);
    ExchangeBuffers buffers;
    buffers.own = own;
    buffers.gathered = gathered;
    buffers.capacity_bytes = 16;
    EXPECT_THROW(RunCounted(loop, *CoreCollective("sparse-allgather"), buffers), Error);
  });
}

TEST(Collectives, SharedIndicesSendValuesAlone) {
  const std::vector<std::uint64_t> bytes(4, 100 * kSparseElementBytes);
  const RoundPlan plan = CoreCollective("shared-indices-allreduce")
                             ->Rounds({{1000, 100, 0}, bytes, {}}, Topology{4, 1});
  EXPECT_EQ(plan.sums, 100u);
  // 102 words in chunks of 26, 26, 25 and 25; a rank sends six chunks.
  EXPECT_EQ(plan.per_rank[0].bytes_sent, (2 * 102 - 26 - 25) * sizeof(float));
}

TEST(Collectives, RanksThatDoNotShareIndicesAreFound) {
  std::atomic<int> failed{0};
  RunRanks(2, 1, kDeadline, [&](ProgressLoop& loop) {
    const auto own = MakePayload(loop.rank(), 5);
    ExchangeBuffers buffers;
    buffers.own = own;
    try {
      RunCounted(loop, *CoreCollective("shared-indices-allreduce"), buffers);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kComm) << error.what();
      ++failed;
    }
  });
  EXPECT_EQ(failed, 2);
}

class ControlCollectives : public ::testing::TestWithParam<int> {};

TEST_P(ControlCollectives, GiveTheSameOnAllRanks) {
  const int ranks = GetParam();
  RunRanks(ranks, 2, kDeadline, [&](ProgressLoop& loop) {
    const int rank = loop.rank();
    std::vector<std::int64_t> values{rank, -rank, std::int64_t{rank == ranks / 2 ? 1 : 0} << 40};
    Traffic traffic;
    loop.RunBlocking([&](Communicator& world) -> Task {
      const Traffic before = Total(world.traffic());
      co_await AllReduceMax(world, values, kTag);
      traffic = Total(world.traffic()) - before;
    });
    EXPECT_EQ(values, (std::vector<std::int64_t>{ranks - 1, 0, std::int64_t{1} << 40}));
    const RoundPlan plan = AllReduceMaxRounds(values.size(), Topology{ranks, 2});
    EXPECT_EQ(traffic, plan.per_rank[static_cast<std::size_t>(rank)]);

    for (int root = 0; root < ranks; ++root) {
      std::vector<std::byte> data(1001, std::byte(rank));
      loop.RunBlocking([&](Communicator& world) { return Broadcast(world, data, root, kTag); });
      EXPECT_EQ(data, std::vector<std::byte>(1001, std::byte(root)));
    }
    const std::vector<std::byte> own(3, std::byte(rank));
    std::vector<std::byte> all(own.size() * static_cast<std::size_t>(ranks));
    loop.RunBlocking([&](Communicator& world) { return AllGather(world, own, all, kTag); });
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], std::byte(i / 3));
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ControlCollectives, ::testing::Values(1, 2, 3, 4, 5, 8));

// No rank leaves a barrier before the last one has entered it.
TEST(Collectives, BarrierHoldsBack) {
  std::atomic<int> entered{0};
  RunRanks(4, 1, kDeadline, [&](ProgressLoop& loop) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      loop.RunBlocking([](Communicator& world) { return Barrier(world, kTag); });
      EXPECT_GE(entered.load(), 4 * round);
    }
  });
}

}  // namespace
}  // namespace sparfuse::testing
