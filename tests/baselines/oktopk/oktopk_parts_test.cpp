// Tests the parts of Ok-Topk's all-reduce by hand: votes on regions, split and reduce, and balanced
// blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "baselines/oktopk/oktopk.hpp"
#include "tests/baselines/oktopk/oktopk_cases.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {
namespace {

using baselines::BlockPiece;

using Indices = std::vector<std::uint32_t>;
using Votes = std::vector<std::int64_t>;
using Counts = std::vector<std::uint64_t>;

constexpr int kTag = 32;

// Runs `task` on every rank and returns each rank's traffic.
std::vector<Traffic> OnRanks(std::size_t ranks, const std::function<Task(Communicator&)>& task) {
  std::vector<Traffic> traffic(ranks);
  RunRanks(static_cast<int>(ranks), 1, kExchangeDeadline, [&](ProgressLoop& loop) {
    loop.RunBlocking([&](Communicator& world) -> Task {
      const Traffic before = Total(world.traffic());
      co_await task(world);
      traffic[static_cast<std::size_t>(world.rank())] = Total(world.traffic()) - before;
    });
  });
  return traffic;
}

RoundPlan EmptyPlan(std::size_t ranks) {
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  return plan;
}

// --- regions ---

TEST(OkTopkRegions, AreVotedForByEqualPartsOfTheSelection) {
  const Indices indices = {2, 5, 7, 11, 13, 20};
  EXPECT_EQ(baselines::RegionVotes(indices, 24, 1), Votes{});
  EXPECT_EQ(baselines::RegionVotes(indices, 24, 3), (Votes{7, 13}));
  EXPECT_EQ(baselines::RegionVotes(indices, 24, 4), (Votes{5, 7, 11}));  // all of them
  // There are fewer indices than ranks: the range is cut into equal parts.
  EXPECT_EQ(baselines::RegionVotes(indices, 24, 8), (Votes{3, 6, 9, 12, 15, 18, 21}));
  EXPECT_EQ(baselines::RegionVotes({}, 10, 4), (Votes{2, 5, 7}));
  EXPECT_EQ(baselines::RegionVotes({}, 2, 4), (Votes{0, 1, 1}));
}

std::vector<std::vector<std::size_t>> Vote(const std::vector<Indices>& selected, std::size_t n,
                                           std::vector<Traffic>* traffic = nullptr) {
  std::vector<std::vector<std::size_t>> boundaries(selected.size());
  const auto counted = OnRanks(selected.size(), [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    return baselines::VoteOnRegions(world, selected[rank], n, boundaries[rank], kTag);
  });
  if (traffic != nullptr) *traffic = counted;
  return boundaries;
}

TEST(OkTopkRegions, BeginAtTheMeanVoteRoundedDown) {
  // Votes (3, 5), (4, 8), and (6, 13) of a rank with fewer elements than ranks.
  for (const auto& boundaries : Vote({{1, 3, 5}, {0, 4, 8}, {7}}, 20)) {
    EXPECT_EQ(boundaries, (std::vector<std::size_t>{0, 4, 8, 20}));
  }
}

TEST(OkTopkRegions, AreVotedForInWideIntegers) {
  const std::uint32_t last = 0xfffffffe;
  const Indices high = {last - 2, last - 1, last};
  for (const auto& boundaries : Vote({high, high, high}, std::size_t{1} << 32)) {
    EXPECT_EQ(boundaries, (std::vector<std::size_t>{0, last - 1, last, std::size_t{1} << 32}));
  }
}

TEST(OkTopkRegions, CoverTheRangeOnAnyNumberOfRanks) {
  std::mt19937 random(1);
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const std::size_t n : {1u, 2u, 7u, 1000u}) {
      std::vector<Indices> selected(ranks);
      for (Indices& indices : selected) {
        for (std::uint32_t i = 0; i < n; ++i) {
          if (random() % 3 == 0) indices.push_back(i);
        }
      }
      std::vector<Traffic> traffic;
      const auto boundaries = Vote(selected, n, &traffic);
      for (const auto& here : boundaries) {
        ASSERT_EQ(here, boundaries[0]);
        ASSERT_EQ(here.size(), ranks + 1);
        EXPECT_EQ(here.front(), 0u);
        EXPECT_EQ(here.back(), n);
        EXPECT_TRUE(std::is_sorted(here.begin(), here.end()));
      }
      RoundPlan plan = EmptyPlan(ranks);
      baselines::AddVoteRounds({static_cast<int>(ranks), 1}, plan);
      EXPECT_EQ(plan.per_rank, traffic);
    }
  }
}

// --- split and reduce ---

struct Split {
  std::vector<Traffic> traffic;
  std::vector<baselines::SplitCounts> counts;
  std::vector<SparseSums> sums;
};

Split SplitAndReduce(const std::vector<SparseVector>& sent,
                     const std::vector<std::size_t>& boundaries, std::size_t bucket) {
  const std::size_t ranks = sent.size();
  Split split{{}, std::vector<baselines::SplitCounts>(ranks), std::vector<SparseSums>(ranks)};
  split.traffic = OnRanks(ranks, [&](Communicator& world) -> Task {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::size_t most = 0;
    for (const SparseVector& each : sent) most = std::max(most, each.size());
    const std::vector<std::byte> own = PayloadOf(sent[rank]);
    std::vector<std::byte> gathered(ranks * most * kBytes);
    ExchangeBuffers buffers;
    buffers.own = own;
    buffers.gathered = gathered;
    buffers.capacity_bytes = most * kBytes;
    RangeSums sums;
    co_await baselines::SplitAndReduce(world, buffers, boundaries, bucket, sums, split.counts[rank],
                                       kTag);
    sums.AppendTo(split.sums[rank]);
  });
  return split;
}

// A rank does not send its own region: 8 (S - s_r) bytes in P - 1 messages, for any buckets.
TEST(OkTopkSplit, SendsWhatLiesInOtherRegions) {
  std::mt19937 random(2);
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    std::vector<std::size_t> boundaries = {0};
    for (std::size_t j = 0; j < ranks; ++j) boundaries.push_back(boundaries.back() + 10 * j);
    const std::size_t n = std::max<std::size_t>(boundaries.back(), 5);
    boundaries.back() = n;
    std::vector<SparseVector> sent(ranks);
    SparseVector expected;
    std::vector<Counts> between(ranks, Counts(ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::uint32_t i = 0; i < n; ++i) {
        if (random() % 4 != 0) continue;
        sent[rank][i] = static_cast<float>(1 + random() % 100);
        expected[i] += sent[rank][i];
        std::size_t owner = 0;
        while (boundaries[owner + 1] <= i) ++owner;
        ++between[rank][owner];
      }
    }
    for (const std::size_t bucket : {1u, 3u, 4u, 100u}) {
      const Split split = SplitAndReduce(sent, boundaries, bucket);
      SparseVector sums;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::uint64_t received = 0;
        for (std::size_t from = 0; from < ranks; ++from) received += between[from][rank];
        received -= between[rank][rank];
        const std::uint64_t kept = between[rank][rank];
        EXPECT_EQ(split.traffic[rank],
                  (Traffic{ranks - 1, ranks - 1, kBytes * (sent[rank].size() - kept),
                           kBytes * received}));
        EXPECT_EQ(split.counts[rank].kept, kept);
        EXPECT_EQ(split.counts[rank].sent, sent[rank].size() - kept);
        EXPECT_EQ(split.counts[rank].received, received);
        for (std::size_t i = 0; i < split.sums[rank].size(); ++i) {
          const std::uint32_t index = split.sums[rank].indices[i];
          EXPECT_GE(index, boundaries[rank]);
          EXPECT_LT(index, boundaries[rank + 1]);
          sums[index] = split.sums[rank].values[i];
        }
      }
      EXPECT_EQ(sums, expected);
      RoundPlan plan = EmptyPlan(ranks);
      baselines::AddSplitRounds(split.counts, bucket, {static_cast<int>(ranks), 1}, plan);
      EXPECT_EQ(plan.per_rank, split.traffic);
      std::uint64_t messages = 0;
      for (const Round& round : plan.rounds) messages += round.repeat * round.messages;
      EXPECT_EQ(messages, ranks - 1);
    }
  }
}

// --- balanced blocks ---

using Piece = std::array<std::uint64_t, 4>;

std::vector<Piece> Pieces(const Counts& counts) {
  std::vector<Piece> pieces;
  for (const BlockPiece& piece : baselines::BlockPieces(counts)) {
    pieces.push_back({piece.from, piece.to, piece.begin, piece.count});
  }
  return pieces;
}

TEST(OkTopkBlocks, CutTheRanksElementsIntoEqualParts) {
  EXPECT_EQ(baselines::BlockCounts(9, 3), (Counts{3, 3, 3}));
  EXPECT_EQ(baselines::BlockCounts(11, 3), (Counts{4, 4, 3}));
  EXPECT_EQ(baselines::BlockCounts(2, 4), (Counts{1, 1, 0, 0}));
  using Expected = std::vector<Piece>;
  EXPECT_EQ(Pieces({7, 0, 2}), (Expected{{0, 0, 0, 3}, {0, 1, 3, 3}, {0, 2, 6, 1}, {2, 2, 7, 2}}));
  EXPECT_EQ(Pieces({0, 2, 0, 0}), (Expected{{1, 0, 0, 1}, {1, 1, 1, 1}}));
  EXPECT_EQ(Pieces({3, 2, 2}), (Expected{{0, 0, 0, 3}, {1, 1, 3, 2}, {2, 2, 5, 2}}));  // unchanged
  EXPECT_EQ(Pieces({0, 0}), Expected{});
  EXPECT_EQ(Pieces({5}), (Expected{{0, 0, 0, 5}}));
}

TEST(OkTopkBlocks, HoldTheArrayInOrderAfterTheMove) {
  std::mt19937 random(4);
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    for (int trial = 0; trial < 8; ++trial) {
      Counts counts(ranks);
      for (auto& count : counts) count = random() % 3 == 0 ? random() % 90 : random() % 4;
      const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
      const Counts blocks = baselines::BlockCounts(total, ranks);
      std::vector<SparseSums> after(ranks);
      const auto traffic = OnRanks(ranks, [&](Communicator& world) -> Task {
        const auto rank = static_cast<std::size_t>(world.rank());
        SparseSums own;
        std::uint64_t at = 0;
        for (std::size_t r = 0; r < rank; ++r) at += counts[r];
        for (std::uint64_t i = 0; i < counts[rank]; ++i, ++at) {
          own.Add(static_cast<std::uint32_t>(3 * at), static_cast<float>(at) + 0.5f);
        }
        std::vector<std::byte> block(blocks[rank] * kBytes);
        co_await baselines::MoveToBlocks(world, own.view(), counts, block, kTag);
        after[rank] = SparseSums(ViewSparsePayload(block));
      });
      std::uint64_t at = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(after[rank].size(), blocks[rank]);
        for (std::size_t i = 0; i < blocks[rank]; ++i, ++at) {
          ASSERT_EQ(after[rank].indices[i], 3 * at);
          ASSERT_EQ(after[rank].values[i], static_cast<float>(at) + 0.5f);
        }
      }
      RoundPlan plan = EmptyPlan(ranks);
      baselines::AddMoveRounds(counts, {static_cast<int>(ranks), 1}, plan);
      EXPECT_EQ(plan.per_rank, traffic);
    }
  }
}

TEST(OkTopkBlocks, AreMovedInOneRoundOfTheBusiestRank) {
  RoundPlan plan = EmptyPlan(3);
  baselines::AddMoveRounds(Counts{7, 0, 2}, {3, 1}, plan);
  ASSERT_EQ(plan.rounds.size(), 1u);
  EXPECT_EQ(plan.rounds[0].messages, 2u);
  EXPECT_EQ(plan.rounds[0].bytes, 4 * kBytes);
  plan = EmptyPlan(3);
  baselines::AddMoveRounds(Counts{3, 3, 2}, {3, 1}, plan);
  EXPECT_TRUE(plan.rounds.empty());
  // Three ranks, two of them on the first node: 3 elements stay there.
  plan = EmptyPlan(3);
  baselines::AddMoveRounds(Counts{7, 0, 2}, {3, 2}, plan);
  EXPECT_EQ(plan.rounds[0].node_bytes, 1 * kBytes);
}

}  // namespace
}  // namespace sparfuse::testing
