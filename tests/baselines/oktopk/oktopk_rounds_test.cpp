// Tests a model's expectations of Ok-Topk's all-reduce: golden times and volumes, rounds by hand,
// and sizes against a run's.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "baselines/registry.hpp"
#include "core/cost/cost_model.hpp"
#include "tests/baselines/oktopk/oktopk_cases.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/golden_timeline.hpp"

namespace sparfuse::testing {
namespace {

RoundPlan Modelled(std::size_t elements, std::size_t k, int ranks, std::uint64_t step = 1,
                   const OverlapModel& overlap = {}, const Options& options = {}) {
  return ExpectedRounds(*OkTopk(options), {elements, k, step}, {ranks, 1}, overlap);
}

// The published volume of a threshold step: 2 k 8 (P - 1) / P bytes, and 8 bytes a rank for the
// counts.
TEST(OkTopkRounds, SendTheGoldenVolumes) {
  const struct {
    double density;
    int ranks;
    double bytes_per_element;
  } kGolden[] = {{0.001, 8, 0.014}, {0.01, 8, 0.140}, {0.01, 16, 0.150},
                 {0.05, 8, 0.700},  {0.1, 8, 1.40},   {0.1, 16, 1.50}};
  constexpr std::size_t kElements = 16'000'000;
  for (const auto& golden : kGolden) {
    const auto k = static_cast<std::size_t>(std::llround(golden.density * kElements));
    const RoundPlan plan = Modelled(kElements, k, golden.ranks);
    const auto ranks = static_cast<std::uint64_t>(golden.ranks);
    for (const Traffic& traffic : plan.per_rank) {
      EXPECT_EQ(traffic.bytes_sent, 2 * k * kBytes * (ranks - 1) / ranks + 8 * (ranks - 1));
      EXPECT_NEAR(static_cast<double>(traffic.bytes_sent) / kElements, golden.bytes_per_element,
                  5e-4);
    }
    EXPECT_EQ(plan.sums, k);
  }
}

// The specification's step: the selection and its copy to the host, the exchange, the copies of the
// own region and of the result to the card, and their sum. Copies are no part of an exchange here.
// The specification counts 3 (P - 1) + 2 log2 P start-ups in a row, the model fewer: a bucket of
// messages has one start-up, and no counts or separate indices are sent before.
double GoldenStepSeconds(const TimedTensors& tensors, double density) {
  constexpr double kCopied = 12e9;  // bytes a second
  constexpr int kRanks = kGoldenRanks;
  const std::size_t elements = Sum(tensors.elements);
  const auto n = static_cast<double>(elements);
  const double k = std::floor(density * n);
  CostModel cost;
  cost.links.fill(LinkCost::FromAlphaBeta(kGoldenAlpha, kGoldenBeta));
  const RoundPlan plan = Modelled(elements, static_cast<std::size_t>(k), kRanks);
  int steps = 0;
  for (const Round& round : plan.rounds) {
    steps += round.messages > 0 ? static_cast<int>(round.repeat) : 0;
  }
  EXPECT_EQ(steps, 2 + 2 * 3);
  EXPECT_EQ(plan.per_rank[0].messages_sent, 7u + 2 * 3u);
  const double start_ups = kGoldenAlpha * (3 * (kRanks - 1) + 2 * 3 - steps);
  return 1.5 * tensors.AllBackwardSeconds() + 3e-5 + 1e-10 * n + 8 * k / kCopied +
         cost.PhasesOf(plan).alone() + start_ups + (4 * n / kRanks + 8 * k) / kCopied + 1e-5 +
         2e-11 * k;
}

TEST(OkTopkRounds, ReproduceTheGoldenTimes) {
  const TimedTensors synthetic = Synthetic();
  EXPECT_NEAR(GoldenStepSeconds(synthetic, 0.01), 0.072433, 5.5e-7);
  EXPECT_NEAR(GoldenStepSeconds(synthetic, 0.1), 0.121029, 5.5e-7);
  const TimedTensors vgg16 = MeasuredVgg16();
  EXPECT_NEAR(GoldenStepSeconds(vgg16, 0.01), 0.1663, 5.1e-5);
  EXPECT_NEAR(GoldenStepSeconds(vgg16, 0.1), 0.3226, 5.1e-5);
}

// All sums are gathered. The overlap gives the number of non-zero sums: 4 ranks of density 0.1.
TEST(OkTopkRounds, GatherTheUnionInExactSteps) {
  const std::uint64_t all = 34'390;  // 1 - 0.9^4 of 100,000
  const RoundPlan plan = Modelled(100'000, 10'000, 4, 32);
  EXPECT_EQ(plan.sums, 10'000u);
  std::uint64_t sent = 0;
  for (const Traffic& traffic : plan.per_rank) sent += traffic.bytes_sent;
  EXPECT_EQ(sent, 3 * (10'000 + all) * kBytes + 4 * 3 * 8);
  EXPECT_EQ(plan.rounds.back()[Work::kSelect], all);
  EXPECT_EQ(plan.rounds.back()[Work::kMerge], 20'000u);
  EXPECT_EQ(Modelled(100'000, 10'000, 4, 0).rounds.size(), plan.rounds.size() + 2);  // the vote
  // Ranks that select the same elements have k sums, as in other steps.
  const auto bytes = [](const RoundPlan& of) { return of.per_rank[0].bytes_sent; };
  EXPECT_EQ(bytes(Modelled(100'000, 10'000, 4, 32, {.theta = 1})),
            bytes(Modelled(100'000, 10'000, 4, 1, {.theta = 1})));
}

TEST(OkTopkRounds, TakeLongerWhereSumsLieUnevenlyUnlessBalanced) {
  const Options off = {{"balance", std::string("off")}};
  const Options on = {{"balance", std::string("on")}};
  const OverlapModel skewed{.skew = 1};
  const auto gathered = BytesOf(Modelled(1'000'000, 10'000, 16, 1, {}, off));
  const auto uneven = BytesOf(Modelled(1'000'000, 10'000, 16, 1, skewed, off));
  EXPECT_GT(uneven, gathered + 10'000 * kBytes / 4);
  const RoundPlan balanced = Modelled(1'000'000, 10'000, 16, 1, skewed, on);
  EXPECT_GT(BytesOf(balanced), gathered);  // the moved blocks
  EXPECT_LE(BytesOf(balanced), gathered + 10'000 * kBytes);
  // Three to one in all: 2 k w (P - 1) / P if even, and w k more for balancing.
  EXPECT_LE(BytesOf(balanced), 3 * 10'000 * kBytes + 8 * 15);
}

TEST(OkTopkRounds, CountWhatLeavesANode) {
  const RoundPlan plan = ExpectedRounds(*OkTopk(), {100'000, 1200, 1}, {4, 2});
  ASSERT_EQ(plan.rounds.size(), 1u + 1 + 2 + 2 + 1);
  // A rank sends 900 elements, two thirds of them to the other node; a node has two ranks.
  EXPECT_EQ(plan.rounds[0].messages, 3u);
  EXPECT_EQ(plan.rounds[0].bytes, 900 * kBytes);
  EXPECT_EQ(plan.rounds[0].node_bytes, 1200 * kBytes);
  // A rank adds 1200 elements in a region of 25,000. All ranks together have selected 1 - 0.988^4
  // of 100,000 elements, and k of them are gathered.
  EXPECT_EQ(plan.rounds[1].messages, 0u);
  EXPECT_EQ(plan.rounds[1].work, (WorkByKind{25'000, 1200, 1179, 0, 0}));
  // The first step sends to the rank before, every second one on the other node. The second step
  // sends two blocks to the rank two places away.
  EXPECT_EQ(plan.rounds[4].bytes, 300 * kBytes);
  EXPECT_EQ(plan.rounds[4].node_bytes, 300 * kBytes);
  EXPECT_EQ(plan.rounds[5].bytes, 600 * kBytes);
  EXPECT_EQ(plan.rounds[5].node_bytes, 1200 * kBytes);
  EXPECT_EQ(plan.rounds[6].work, (WorkByKind{0, 2400, 0, 0, 0}));
  for (const Round& round : plan.rounds) EXPECT_EQ(round.link, LinkClass::kInterNode);
}

// Ranks select independently at random; only their numbers of elements are expected.
TEST(OkTopkRounds, ExpectWhatRandomSelectionsAreMeasuredToBe) {
  constexpr std::size_t kRanks = 8;
  std::mt19937 random(17);
  const Sent sent = RandomSent(kRanks, 20'000, 1000, random, [](std::mt19937& of) {
    return static_cast<float>(of() % 10'000) - 5000.5f;
  });
  const auto collective = OkTopk();
  const auto steps = RunExchanges(*collective, {sent, sent});
  for (std::size_t step = 0; step < 2; ++step) {
    ExchangeSizes expected = RecordedSizes(*collective, sent, step, steps[step]);
    const ExchangeSizes recorded = expected;
    collective->Expect({}, {kRanks, 1}, expected);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(expected.seen[rank][0], recorded.seen[rank][0]);
      for (std::size_t word = 1; word < recorded.seen[rank].size(); ++word) {
        const auto measured = static_cast<double>(recorded.seen[rank][word]);
        // A region holds few elements: counts of independent elements vary by their square root.
        EXPECT_NEAR(static_cast<double>(expected.seen[rank][word]), measured,
                    0.05 * measured + 4 * std::sqrt(measured))
            << "rank " << rank << ", word " << word;
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing
