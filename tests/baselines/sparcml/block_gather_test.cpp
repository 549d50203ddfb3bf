// Tests that blocks of any sizes arrive on any number of ranks, in the rounds that are planned.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "baselines/sparcml/partial_sum.hpp"
#include "core/base/error.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::baselines {
namespace {

TEST(BlockGather, BringsBlocksWhereTheyBelong) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<std::uint64_t> begins = {0};
    std::vector<std::byte> expected;
    for (int rank = 0; rank < ranks; ++rank) {
      expected.resize(expected.size() + static_cast<std::size_t>(rank * 7 % 5),  // some are empty
                      static_cast<std::byte>(rank + 1));
      begins.push_back(expected.size());
    }
    std::vector<Traffic> traffic(static_cast<std::size_t>(ranks));
    testing::RunRanks(ranks, 1, testing::kExchangeDeadline, [&](ProgressLoop& loop) {
      const auto rank = static_cast<std::size_t>(loop.rank());
      std::vector<std::byte> data(expected.size());
      std::fill(data.begin() + static_cast<std::ptrdiff_t>(begins[rank]),
                data.begin() + static_cast<std::ptrdiff_t>(begins[rank + 1]),
                static_cast<std::byte>(rank + 1));
      loop.RunBlocking([&](Communicator& world) -> Task {
        co_await GatherBlocks(world, data, begins, 32);
        traffic[rank] = Total(world.traffic());
      });
      EXPECT_EQ(data, expected) << "rank " << rank;
    });
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(ranks));
    AddGatherRounds(begins, {ranks, 1}, plan);
    EXPECT_EQ(plan.per_rank, traffic);
    EXPECT_EQ(plan.rounds.size(), std::bit_width(static_cast<unsigned>(ranks - 1)));
  }
}

// Rank 1 has another idea of the blocks.
TEST(BlockGather, NamesTheRankWhoseBlockHasAnotherSize) {
  const auto gather = [](ProgressLoop& loop) {
    std::vector<std::byte> data(8);
    const std::vector<std::uint64_t> begins = {0, 4, 8};
    loop.RunBlocking([&](Communicator& world) -> Task {
      if (world.rank() == 0) {
        co_await GatherBlocks(world, data, begins, 32);
      } else {
        co_await Complete(world.Irecv(0, 32, std::span(data).first(4)),
                          world.Isend(0, 32, std::span(data).last(3)));
      }
    });
  };
  try {
    testing::RunRanks(2, 1, testing::kExchangeDeadline, gather);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kComm);
    EXPECT_STREQ(error.what(), "all-gather of blocks: 3 bytes from rank 1: expected 4");
  }
}

}  // namespace
}  // namespace sparfuse::baselines
