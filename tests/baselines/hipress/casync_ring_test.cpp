// Tests CaSync-Ring: by hand, against the algorithm on dense vectors, and its limits.
#include "baselines/hipress/casync_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "baselines/registry.hpp"
#include "core/collective/algorithms.hpp"
#include "core/engine/unit_strategy.hpp"
#include "tests/support/communicators/stopping_communicator.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

std::unique_ptr<Collective> Made() { return MakeCollective(FindCollective("casync-ring")); }

std::vector<Outcome> ExchangeOf(const Vectors& vectors, std::size_t kept) {
  return RunExchanges(*Made(), {Accumulated(vectors, kept)}).front();
}

// Partitions {0, 1} and {2, 3}, with one kept element each. Rank 0 sends the 5 at 0, rank 1 the 4
// at 3. Then rank 1 holds 5 - 4 and 1 in partition 0, and keeps the first of the equal values. Rank
// 0 holds 2 and 6 + 4 in partition 1.
TEST(CasyncRing, ByHand) {
  const auto outcomes = ExchangeOf({{5, 3, 2, 6}, {-4, 1, 1, 4}}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{1, 0, 0, 10}));
    EXPECT_EQ(outcome.summed, 2u);
    EXPECT_TRUE(outcome.increasing);
    EXPECT_EQ(outcome.traffic, (Traffic{2, 2, 16, 16}));
  }
  EXPECT_EQ(outcomes[0].returned, (std::vector<float>{-5, 0, 0, -6}));
  EXPECT_EQ(outcomes[1].returned, (std::vector<float>{4, 0, 0, -4}));
}

// The same algorithm on dense vectors, one partition after the other.
struct Dense {
  std::vector<float> applied;
  Vectors left;
};

Dense Reference(Vectors vectors, std::size_t kept) {
  const std::size_t ranks = vectors.size(), n = vectors[0].size();
  const Shards shards{n, ranks};
  Dense result{std::vector<float>(n), {}};
  for (std::size_t p = 0; p < ranks; ++p) {
    const std::size_t m = shards.Size(p);
    std::vector<float> travels(m);
    for (std::size_t hop = 0; hop < ranks && m > 0; ++hop) {
      float* const own = vectors[(p + hop) % ranks].data() + shards.Begin(p);
      for (std::size_t i = 0; i < m; ++i) own[i] += travels[i];
      std::vector<std::size_t> order(m);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater<>(), [&](auto i) { return std::abs(own[i]); });
      std::ranges::fill(travels, 0.0f);
      const std::size_t most = std::max<std::size_t>(1, m * kept / n);
      for (std::size_t i = 0; i < most; ++i) std::swap(travels[order[i]], own[order[i]]);
    }
    std::ranges::copy(travels,
                      result.applied.begin() + static_cast<std::ptrdiff_t>(shards.Begin(p)));
  }
  result.left = std::move(vectors);
  return result;
}

TEST(CasyncRing, DoesWhatTheAlgorithmDoesOnDenseVectors) {
  std::mt19937 random(1);
  for (const std::size_t ranks : {1, 2, 3, 5, 8, 12}) {
    for (const std::size_t elements : {1, 3, 7, 203}) {
      for (const std::size_t kept : {std::size_t{1}, elements / 5 + 1, elements}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(elements) + ", k " +
                     std::to_string(kept));
        Vectors vectors(ranks, std::vector<float>(elements));
        for (auto& vector : vectors) {
          for (float& value : vector)
            value = static_cast<float>(static_cast<int>(random() % 201)) - 100;
        }
        const Dense expected = Reference(vectors, kept);
        const auto outcomes = ExchangeOf(vectors, kept);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(outcomes[rank].applied, expected.applied);
          for (std::size_t i = 0; i < elements; ++i) {
            ASSERT_EQ(vectors[rank][i] + outcomes[rank].returned[i], expected.left[rank][i]);
          }
        }
        if (kept < elements) continue;
        for (std::size_t i = 0; i < elements; ++i) {  // all elements kept: the dense sum
          float sum = 0;
          for (const auto& vector : vectors) sum += vector[i];
          ASSERT_EQ(expected.applied[i], sum);
        }
      }
    }
  }
}

// 6 elements in partitions of 2, each with one kept element; 2 steps of 8 bytes, twice.
TEST(CasyncRing, RoundsByHand) {
  const RoundPlan plan = Made()->Rounds({{6, 3, 0, {}}, {0, 0, 0}, {}}, {3, 3});
  ASSERT_EQ(plan.rounds.size(), 2u);
  for (const Round& round : plan.rounds) {
    EXPECT_EQ(round.repeat, 2u);
    EXPECT_EQ(round.bytes, 16u);
  }
  EXPECT_EQ(plan.rounds[0][Work::kAdd], 6u);
  EXPECT_EQ(plan.rounds[0][Work::kMerge], 2u);
  EXPECT_EQ(plan.sums, 3u);
  EXPECT_EQ(plan.per_rank[1], (Traffic{4, 4, 32, 32}));
}

// The sum of two ranks overflows on one of them: no rank waits forever, and the infinity is in
// every rank's result.
TEST(CasyncRing, TakesAnOverflowAround) {
  const float huge = std::numeric_limits<float>::max();
  for (const Outcome& outcome : ExchangeOf({{huge, 1, 1}, {huge, 1, 1}, {1, 1, 1}}, 3)) {
    EXPECT_TRUE(std::isinf(outcome.applied[0]));
  }
}

// --- live ---

std::vector<RankResult> Trained(const char* collective, int ranks,
                                std::chrono::milliseconds wait = kLiveDeadline,
                                const Wrap& wrap = Unwrapped) {
  return RunLive(
      [&] {
        LiveConfig config = SparseLive(
            {{{0, 5, Sparsified::kBehind, 0.05}, {5, 8, Sparsified::kBehind, 0.05}}}, {ranks, 1});
        config.sparse_collective = MakeCollective(FindCollective(collective));
        return config;
      },
      ranks, IntegerGradient, 999, {}, wrap, 0, wait);
}

// One rank has one partition, and sends its selection.
TEST(CasyncRing, OfOneRankIsFlat) {
  const auto ring = Trained("casync-ring", 1);
  const auto flat = Trained("sparse-allgather", 1);
  EXPECT_EQ(ring[0].averaged, flat[0].averaged);
  EXPECT_EQ(ring[0].residual, flat[0].residual);
}

TEST(CasyncRing, NamesARankThatStopsInAnyOfItsSteps) {
  const auto messages = Trained("casync-ring", 4)[2].records.front().messages_sent;
  ExpectTheStoppedRankIsNamed({{2, static_cast<int>(messages), [](const Wrap& wrap, auto wait) {
                                  Trained("casync-ring", 4, wait, wrap);
                                }}});
}

// --- its planner ---

TEST(SecopaPlanner, OfARing) {
  GradientLayout layout;
  layout.Add("bias", {100}, 100);
  layout.Add("weight", {4'000'000}, 4'000'000);
  const auto plan = [&](const Options& options) {
    return PlanOf("hipress", {layout, {12, 4}, 0.01, Sparsified::kBehind}, options);
  };
  const Plan ring = plan({{"topology", std::string("ring")}});
  ASSERT_EQ(ring.units.size(), 2u);
  EXPECT_EQ(ring.units[0].sparsified, Sparsified::kNever);
  EXPECT_EQ(ring.units[1].sparsified, Sparsified::kBehind);
  EXPECT_EQ(ring.units[1].partitions, 12);
  EXPECT_LT(plan({}).units[1].partitions, 12);
  ExpectIn("partitions = 3 with topology \"ring\"", ErrorOf([&] {
             plan({{"topology", std::string("ring")}, {"partitions", std::int64_t{3}}});
           }));
}

}  // namespace
}  // namespace sparfuse::testing
