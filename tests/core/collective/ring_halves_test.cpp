// Tests the halves of the ring: the shard that each half leaves with a rank, and its payload.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/collective/algorithms.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/strategies.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

struct HalfOutcome {
  std::vector<float> data;
  Traffic traffic;
};

std::vector<HalfOutcome> RunHalf(const Collective& half, int ranks, std::size_t elements,
                                 const std::vector<std::uint32_t>& begins = {}) {
  std::vector<HalfOutcome> outcomes(static_cast<std::size_t>(ranks));
  RunRanks(ranks, ranks, kDeadline, [&](ProgressLoop& loop) {
    auto& [data, traffic] = outcomes[static_cast<std::size_t>(loop.rank())];
    for (std::size_t i = 0; i < elements; ++i) {
      data.push_back(static_cast<float>(static_cast<std::size_t>(loop.rank() + 1) * (i + 1)));
    }
    ExchangeBuffers buffers;
    buffers.dense = data;
    buffers.part_begins = begins;
    traffic = RunCounted(loop, half, buffers);
  });
  return outcomes;
}

// Runs both halves with a shard of each length, and compares them with their rounds.
// given: the lengths are given to the halves, and are not those that they choose.
void ExpectShardsWhereTheyBelong(const std::vector<std::size_t>& lengths, bool given) {
  const auto ranks = static_cast<int>(lengths.size());
  std::vector<std::uint32_t> begins = {0};
  std::vector<std::uint64_t> bytes;
  for (const std::size_t length : lengths) {
    begins.push_back(begins.back() + static_cast<std::uint32_t>(length));
    bytes.push_back(4 * length);
  }
  const std::size_t elements = begins.back();
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(elements));
  ExchangeSizes sizes;
  sizes.payload_bytes.assign(lengths.size(), 4 * elements);
  if (given) sizes.part_bytes.assign(lengths.size(), bytes);
  const std::vector<std::uint32_t> parts = given ? begins : std::vector<std::uint32_t>{};
  const auto reduced = RunHalf(RingReduceScatter(), ranks, elements, parts);
  const auto gathered = RunHalf(RingAllGather(), ranks, elements, parts);
  const RoundPlan reducing = RingReduceScatter().Rounds(sizes, {ranks, ranks});
  const RoundPlan gathering = RingAllGather().Rounds(sizes, {ranks, ranks});
  if (given) {
    EXPECT_EQ(reducing.rounds[0].bytes, (lengths.size() - 1) * 4 * std::ranges::max(lengths));
    EXPECT_EQ(reducing.rounds[0][Work::kAdd], elements - std::ranges::min(lengths));
  }
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    EXPECT_EQ(reduced[rank].traffic, reducing.per_rank[rank]);
    EXPECT_EQ(gathered[rank].traffic, gathering.per_rank[rank]);
    for (std::size_t shard = 0; shard < lengths.size(); ++shard) {
      for (std::size_t i = begins[shard]; i < begins[shard + 1]; ++i) {
        const auto sum = static_cast<float>(ranks * (ranks + 1) / 2) * static_cast<float>(i + 1);
        if (shard == rank) {
          EXPECT_EQ(reduced[rank].data[i], sum);
        }
        EXPECT_EQ(gathered[rank].data[i], static_cast<float>((shard + 1) * (i + 1)));
      }
    }
  }
}

TEST(RingHalves, LeaveEveryShardWhereItBelongsAndSendWhatTheirRoundsSay) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t elements : {0u, 1u, 4u, 5u, 1000u}) {
      std::vector<std::size_t> lengths;
      for (int r = 0; r < ranks; ++r) lengths.push_back(ShardOf({0, elements}, r, ranks).size());
      ExpectShardsWhereTheyBelong(lengths, false);
    }
  }
}

// Shards of given lengths, empty ones among them.
TEST(RingHalves, HaveShardsOfGivenLengths) {
  for (const std::vector<std::size_t>& lengths :
       std::vector<std::vector<std::size_t>>{{3, 9}, {0, 5}, {5, 0}, {7, 0, 11}, {1, 2, 3, 100}}) {
    ExpectShardsWhereTheyBelong(lengths, true);
  }
}

// 5 elements on 2 ranks: shards of 3 and 2. Rank 0 sends the second and adds 3 elements to its own.
TEST(RingHalves, RoundsByHand) {
  const RoundPlan plan = RingReduceScatter().Rounds(SizesOf({20, 20}), {2, 2});
  ASSERT_EQ(plan.rounds.size(), 1u);
  EXPECT_EQ(plan.rounds[0].bytes, 12u);
  EXPECT_EQ(plan.rounds[0][Work::kAdd], 3u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{1, 1, 8, 12}));
  EXPECT_EQ(plan.per_rank[1], (Traffic{1, 1, 12, 8}));
}

// The sum of two ranks' elements, by the all-reduce of halves, as rank 0 has it.
float SumAsHalves(float of_rank_0, float of_rank_1, bool keeps_the_rest) {
  float sum = 0;
  RunRanks(2, 2, kDeadline, [&](ProgressLoop& loop) {
    std::vector<float> data(8, loop.rank() == 0 ? of_rank_0 : of_rank_1);
    std::vector<float> rounded(keeps_the_rest ? data.size() : 0);
    ExchangeBuffers buffers;
    buffers.dense = data;
    buffers.rounded = rounded;
    loop.RunBlocking(
        [&](Communicator& world) -> Task { co_await F16AllReduce().Run(world, buffers, 32); });
    if (loop.rank() == 0) sum = data[5];
  });
  return sum;
}

TEST(RingHalves, AsF16SumsBeyondTheLargestHalfAreErrorsUnlessTheRestIsKept) {
  EXPECT_EQ(SumAsHalves(32752, 32752, false), 65504);
  EXPECT_EQ(SumAsHalves(-32752, -32752, false), -65504);
  EXPECT_EQ(SumAsHalves(32768, 32744, false), 65504);  // 65512 rounds to the largest half
  // Both ranks meet the error at the same step, so that neither waits for the other.
  for (const auto& [first, second] : {std::pair(40000.0f, 40000.0f),
                                      {-40000.0f, -40000.0f},
                                      {32768.0f, 32752.0f},
                                      {70000.0f, 70000.0f},
                                      {-1e30f, -1e30f}}) {
    const auto wrong = [first = first, second = second] { SumAsHalves(first, second, false); };
    EXPECT_NE(ErrorOf(wrong, FailureKind::kNumeric).find("beyond 65504, the largest fp16 value"),
              std::string::npos)
        << first << " + " << second;
    EXPECT_EQ(SumAsHalves(first, second, true), std::copysign(65504.0f, first + second));
  }
}

}  // namespace
}  // namespace sparfuse::testing
