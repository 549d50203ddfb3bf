// Tests every collective on every number of ranks: the sum is right, all ranks get equal bits, and
// the counted traffic of the real run is what its rounds say.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "tests/support/run_ranks.hpp"
#include "tests/support/transport_cases.hpp"

namespace sparfuse {
namespace {

constexpr std::chrono::milliseconds kDeadline{60'000};
constexpr int kTag = 32;

// What a collective did on one rank.
struct Outcome {
  std::vector<float> sum;
  Traffic traffic;
};

// Payload of `rank`: `count` elements at every third place from `rank` on, integers as values.
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

// sizes[r]: elements of rank r.
std::vector<Outcome> RunDense(const Collective& collective, std::span<const std::size_t> sizes,
                              int ranks_per_node) {
  std::vector<Outcome> outcomes(sizes.size());
  testing::RunRanks(static_cast<int>(sizes.size()), ranks_per_node, kDeadline,
                    [&](ProgressLoop& loop) {
                      const auto rank = static_cast<std::size_t>(loop.rank());
                      std::vector<float> data(sizes[rank]);
                      for (std::size_t i = 0; i < data.size(); ++i) {
                        data[i] = static_cast<float>((rank + 1) * (i % 1000));
                      }
                      ExchangeBuffers buffers;
                      buffers.dense = data;
                      loop.RunBlocking([&](Communicator& world) -> Task {
                        const Traffic before = Total(world.traffic());
                        co_await collective.run(world, buffers, kTag);
                        outcomes[rank].traffic = Total(world.traffic()) - before;
                      });
                      outcomes[rank].sum = data;
                    });
  return outcomes;
}

std::vector<Outcome> RunSparse(const Collective& collective, std::span<const std::size_t> sizes,
                               int ranks_per_node) {
  std::vector<Outcome> outcomes(sizes.size());
  const std::size_t capacity = *std::max_element(sizes.begin(), sizes.end()) + 2;
  testing::RunRanks(static_cast<int>(sizes.size()), ranks_per_node, kDeadline,
                    [&](ProgressLoop& loop) {
                      const auto rank = static_cast<std::size_t>(loop.rank());
                      const std::vector<std::byte> own = MakePayload(loop.rank(), sizes[rank]);
                      Buffer<float> gathered(sizes.size() * capacity * 2);
                      ExchangeBuffers buffers;
                      buffers.own = own;
                      buffers.gathered = std::as_writable_bytes(gathered.host());
                      buffers.capacity_bytes = capacity * kSparseElementBytes;
                      loop.RunBlocking([&](Communicator& world) -> Task {
                        const Traffic before = Total(world.traffic());
                        co_await collective.run(world, buffers, kTag);
                        outcomes[rank].traffic = Total(world.traffic()) - before;
                      });
                      outcomes[rank].sum.resize(3 * capacity + sizes.size());
                      ASSERT_EQ(buffers.by_rank.size(), sizes.size());
                      for (std::size_t r = 0; r < sizes.size(); ++r) {
                        const SparsePayload payload = ViewSparsePayload(buffers.by_rank[r]);
                        ASSERT_EQ(payload.indices.size(), sizes[r]);
                        for (std::size_t i = 0; i < payload.indices.size(); ++i) {
                          outcomes[rank].sum.at(payload.indices[i]) += payload.values[i];
                        }
                      }
                    });
  return outcomes;
}

std::vector<float> ExpectedDense(std::span<const std::size_t> sizes) {
  std::vector<float> sum(sizes[0]);
  const auto ranks = sizes.size();
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = static_cast<float>(ranks * (ranks + 1) / 2 * (i % 1000));
  }
  return sum;
}
std::vector<float> ExpectedSparse(std::span<const std::size_t> sizes) {
  std::vector<float> sum(3 * (*std::max_element(sizes.begin(), sizes.end()) + 2) + sizes.size());
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    for (std::size_t i = 0; i < sizes[r]; ++i) {
      sum[3 * i + r] += static_cast<float>((r + 1) * (i + 1));
    }
  }
  return sum;
}

// Elements of each rank. Dense collectives take the cases whose sizes are all equal.
std::vector<std::vector<std::size_t>> SizeCases(std::size_t ranks, PayloadKind payload) {
  std::vector<std::vector<std::size_t>> cases;
  for (const std::size_t n : {0, 1, 2, 3, 7, 8, 9, 1000, 100'003}) cases.emplace_back(ranks, n);
  if (payload == PayloadKind::kSparse) {
    for (auto& sizes : testing::UnequalSizes(ranks)) cases.push_back(std::move(sizes));
  }
  return cases;
}

struct Case {
  std::string collective;
  int ranks;
  int ranks_per_node;
};
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Collective& collective : Collectives()) {
    if (collective.native) continue;
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      cases.push_back({std::string(collective.name), ranks, 1});
      cases.push_back({std::string(collective.name), ranks, 2});
    }
  }
  return cases;
}

class CollectiveRounds : public ::testing::TestWithParam<Case> {};

TEST_P(CollectiveRounds, SumsAndCountsAsPlanned) {
  const Collective& collective = FindCollective(GetParam().collective);
  const bool dense = collective.payload == PayloadKind::kDense;
  const Topology topology{GetParam().ranks, GetParam().ranks_per_node};
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  for (const auto& sizes : SizeCases(ranks, collective.payload)) {
    SCOPED_TRACE("elements of rank 0: " + std::to_string(sizes[0]));
    const auto outcomes = dense ? RunDense(collective, sizes, topology.ranks_per_node)
                                : RunSparse(collective, sizes, topology.ranks_per_node);
    const auto expected = dense ? ExpectedDense(sizes) : ExpectedSparse(sizes);
    std::vector<std::uint64_t> bytes;
    for (const std::size_t size : sizes) {
      bytes.push_back(size * (dense ? sizeof(float) : kSparseElementBytes));
    }
    const RoundPlan plan = collective.rounds(bytes, topology);
    ASSERT_EQ(plan.per_rank.size(), ranks);
    std::uint64_t busiest_bytes = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(outcomes[rank].sum, expected) << "rank " << rank;
      const Traffic& counted = outcomes[rank].traffic;
      const Traffic& planned = plan.per_rank[rank];
      EXPECT_EQ(counted.messages_sent, planned.messages_sent) << "rank " << rank;
      EXPECT_EQ(counted.messages_received, planned.messages_received) << "rank " << rank;
      EXPECT_EQ(counted.bytes_sent, planned.bytes_sent) << "rank " << rank;
      EXPECT_EQ(counted.bytes_received, planned.bytes_received) << "rank " << rank;
      busiest_bytes = std::max({busiest_bytes, counted.bytes_sent, counted.bytes_received});
    }
    // A round takes as long as its busiest rank: the rounds bound what any rank moves.
    std::uint64_t round_bytes = 0;
    for (const Round& round : plan.rounds) {
      round_bytes += round.bytes;
      EXPECT_EQ(round.link, topology.nodes() > 1 ? LinkClass::kInterNode : LinkClass::kIntraNode);
    }
    EXPECT_GE(round_bytes, busiest_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CollectiveRounds, ::testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.collective;
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_" + std::to_string(info.param.ranks) + "_" +
         std::to_string(info.param.ranks_per_node);
});

TEST(Collectives, RingGivesEqualBitsOnAllRanksWhereOrderMatters) {
  constexpr int kRanks = 5;
  std::vector<std::vector<float>> results(kRanks);
  testing::RunRanks(kRanks, 1, kDeadline, [&](ProgressLoop& loop) {
    auto& data = results[static_cast<std::size_t>(loop.rank())];
    data.resize(10'007);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = 1.0f / static_cast<float>(1 + i * 7 + static_cast<std::size_t>(loop.rank()));
    }
    ExchangeBuffers buffers;
    buffers.dense = data;
    loop.RunBlocking([&](Communicator& world) {
      return FindCollective("ring-allreduce").run(world, buffers, kTag);
    });
  });
  for (const auto& result : results) {
    ASSERT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

TEST(Collectives, RoundsOfAThousandRanksAreCompressed) {
  for (const Collective& collective : Collectives()) {
    const std::vector<std::uint64_t> sizes(1024, 8'000'000);
    const RoundPlan plan = collective.rounds(sizes, Topology{1024, 8});
    EXPECT_LE(plan.rounds.size(), 4u) << collective.name;
    Traffic sent;
    for (const auto& traffic : plan.per_rank) sent += traffic;
    EXPECT_EQ(sent.bytes_sent, sent.bytes_received) << collective.name;
    EXPECT_EQ(sent.messages_sent, sent.messages_received) << collective.name;
  }
}

// 5 elements on 2 ranks: chunks of 3 and 2, two steps of the larger; rank 0 sends chunks 0 and 1.
TEST(Collectives, RingRoundsByHand) {
  const std::vector<std::uint64_t> sizes(2, 20);
  const RoundPlan plan = FindCollective("ring-allreduce").rounds(sizes, Topology{2, 1});
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].bytes, 12u);
  EXPECT_EQ(plan.rounds[0].reduced_elements, 3u);
  EXPECT_EQ(plan.rounds[1].bytes, 12u);
  EXPECT_EQ(plan.rounds[1].reduced_elements, 0u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 2, 20, 20}));
}

TEST(Collectives, SparseAllGatherRoundsByHand) {
  const std::vector<std::uint64_t> sizes{8, 80, 0};
  const RoundPlan plan = FindCollective("sparse-allgather").rounds(sizes, Topology{3, 1});
  ASSERT_EQ(plan.rounds.size(), 1u);
  EXPECT_EQ(plan.rounds[0].repeat, 2u);
  EXPECT_EQ(plan.rounds[0].bytes, 160u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 2, 8, 80}));
  EXPECT_EQ(plan.per_rank[1], (Traffic{2, 2, 88, 8}));
  EXPECT_EQ(plan.per_rank[2], (Traffic{2, 2, 80, 88}));
}

TEST(Collectives, UnknownNameSuggestsTheNearest) {
  try {
    (void)FindCollective("ring-alreduce");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "no collective named \"ring-alreduce\"; did you mean \"ring-allreduce\"?");
  }
}

TEST(Collectives, NativeIsRefusedWhereTheBackendHasNone) {
  testing::RunRanks(2, 1, kDeadline, [](ProgressLoop& loop) {
    std::vector<float> data(4);
    ExchangeBuffers buffers;
    buffers.dense = data;
    try {
      loop.RunBlocking([&](Communicator& world) {
        return FindCollective("native-allreduce").run(world, buffers, kTag);
      });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kUnsupported);
    }
  });
}

TEST(Collectives, PayloadAboveTheCapacityIsRefused) {
  testing::RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    const auto own = MakePayload(0, 3);
    std::vector<std::byte> gathered(64);
    ExchangeBuffers buffers;
    buffers.own = own;
    buffers.gathered = gathered;
    buffers.capacity_bytes = 16;
    EXPECT_THROW(loop.RunBlocking([&](Communicator& world) {
      return FindCollective("sparse-allgather").run(world, buffers, kTag);
    }),
                 Error);
  });
}

class ControlCollectives : public ::testing::TestWithParam<int> {};

TEST_P(ControlCollectives, GiveTheSameOnAllRanks) {
  const int ranks = GetParam();
  testing::RunRanks(ranks, 2, kDeadline, [&](ProgressLoop& loop) {
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
  testing::RunRanks(4, 1, kDeadline, [&](ProgressLoop& loop) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      loop.RunBlocking([](Communicator& world) { return Barrier(world, kTag); });
      EXPECT_GE(entered.load(), 4 * round);
    }
  });
}

}  // namespace
}  // namespace sparfuse
