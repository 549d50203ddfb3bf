// Tests gTop-k by hand on few ranks, by its laws on many, and against its published costs.
#include "baselines/gtopk/gtopk.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "baselines/composition.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/golden_timeline.hpp"

namespace sparfuse::baselines {
namespace {

using testing::NonZeros;
using testing::Outcome;
using testing::Sent;
using testing::SparseVector;

std::shared_ptr<const Collective> MakeGtopk(const Options& options = {}) {
  return MakeCollective(FindCollective("gtopk"), options);
}

std::vector<Outcome> RunOnce(const Sent& sent, const Options& options = {}) {
  return testing::RunExchanges(*MakeGtopk(options), {sent}).front();
}

std::vector<SparseVector> Returned(const std::vector<Outcome>& outcomes) {
  std::vector<SparseVector> returned;
  for (const Outcome& outcome : outcomes) returned.push_back(NonZeros(outcome.returned));
  return returned;
}

// --- by hand ---

// Ranks 0 and 1 sum to {0: 5, 2: 4} and drop 3 at 1. Ranks 2 and 3 sum to {1: 10, 5: 6}, which is
// the result. The published code loses the 3.
const Sent kFour = {
    "four", 6, 2, {{{0, 5}, {1, 3}}, {{2, 4}, {3, 1}}, {{1, 9}, {4, 2}}, {{1, 1}, {5, 6}}}};

TEST(Gtopk, GivesBackWhatTheTreeDrops) {
  const std::vector<Outcome> outcomes = RunOnce(kFour);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{1, 10}, {5, 6}}));
  }
  EXPECT_EQ(Returned(outcomes),
            (std::vector<SparseVector>{{{0, 5}, {1, 3}}, {{2, 4}, {3, 1}}, {{4, 2}}, {}}));
}

TEST(Gtopk, CompatLosesIt) {
  const std::vector<Outcome> outcomes = RunOnce(kFour, {{"compat", true}});
  EXPECT_EQ(NonZeros(outcomes[0].applied), (SparseVector{{1, 10}, {5, 6}}));
  EXPECT_EQ(Returned(outcomes),
            (std::vector<SparseVector>{{{0, 5}}, {{2, 4}, {3, 1}}, {{4, 2}}, {}}));
}

// Rank 0 drops 3, then 5 at index 7; ranks 4 to 7 bring this index into the result.
TEST(Gtopk, AddsUpWhatARankHasDroppedOfAnIndex) {
  const Sent sent = {
      "eight",
      8,
      1,
      {{{0, 10}}, {{7, 3}}, {{7, 4}}, {{7, 1}}, {{7, 6}}, {{7, 5}}, {{7, 1}}, {{7, 1}}}};
  const std::vector<Outcome> outcomes = RunOnce(sent);
  EXPECT_EQ(NonZeros(outcomes[5].applied), (SparseVector{{7, 13}}));
  EXPECT_EQ(NonZeros(outcomes[0].returned), (SparseVector{{0, 10}, {7, 8}}));
}

// Rank 2 has no partner in the first round and continues in the second.
TEST(Gtopk, GoesOnWithoutAPartner) {
  const Sent sent = {"three", 4, 1, {{{0, 1}}, {{1, 2}}, {{3, -4}}}};
  const std::vector<Outcome> outcomes = RunOnce(sent);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{3, -4}}));
  }
  EXPECT_EQ(Returned(outcomes), (std::vector<SparseVector>{{{0, 1}}, {{1, 2}}, {}}));
}

TEST(Gtopk, KeepsTheFirstOfEqualMagnitudes) {
  const Sent sent = {"ties", 9, 1, {{{5, 2}}, {{3, -2}}}};
  EXPECT_EQ(NonZeros(RunOnce(sent)[1].applied), (SparseVector{{3, -2}}));
}

// --- laws ---

Sent Random(std::size_t ranks, std::size_t elements, std::size_t k, std::mt19937& random) {
  return testing::RandomSent(ranks, elements, k, random, [](std::mt19937& of) {
    return static_cast<float>(1 + static_cast<int>(of() % 100));
  });
}

// The part of the sent sum that is missing in the results.
double LostOf(const Sent& sent, const std::vector<Outcome>& outcomes) {
  double lost = 0;
  for (std::size_t rank = 0; rank < sent.ranks(); ++rank) {
    for (const auto& [index, value] : sent.by_rank[rank]) lost += value;
    for (const float value : outcomes[rank].returned) lost -= value;
  }
  for (const float value : outcomes[0].applied) lost -= value;
  return lost;
}

// A tenth of the elements on eight ranks, 20 times: the published form loses some each time.
TEST(Gtopk, KeepsMassWhereCompatLosesIt) {
  std::mt19937 random(1);
  std::vector<Sent> steps;
  for (int step = 0; step < 20; ++step) steps.push_back(Random(8, 500, 50, random));
  const auto kept = testing::RunExchanges(*MakeGtopk(), steps);
  const auto lost = testing::RunExchanges(*MakeGtopk({{"compat", true}}), steps);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    EXPECT_EQ(LostOf(steps[step], kept[step]), 0) << "step " << step;
    EXPECT_GT(LostOf(steps[step], lost[step]), 0) << "step " << step;
    EXPECT_EQ(kept[step][0].applied, lost[step][0].applied);
  }
}

TEST(Gtopk, SaysWhatItConserves) {
  EXPECT_EQ(MakeGtopk()->traits().mass, Conservation::kRounded);
  EXPECT_EQ(MakeGtopk({{"compat", true}})->traits().mass, Conservation::kLost);
  EXPECT_TRUE(MakeGtopk()->traits().equal_counts);
}

// Rank 0 of 8 receives and sends three messages of k elements; a leaf receives and sends one.
TEST(Gtopk, SendsKElementsUpAndDownTheTree) {
  std::mt19937 random(2);
  const Sent sent = Random(8, 1000, 30, random);
  for (const auto& [wire, bytes] : {std::pair{"f32", 240u}, {"f64", 480u}}) {
    const std::vector<Outcome> outcomes = RunOnce(sent, {{"wire", std::string(wire)}});
    EXPECT_EQ(outcomes[0].traffic, (Traffic{3, 3, 3 * bytes, 3 * bytes}));
    EXPECT_EQ(outcomes[7].traffic, (Traffic{1, 1, bytes, bytes}));
    EXPECT_TRUE(outcomes[0].seen.empty());
  }
}

TEST(Gtopk, ShowsAnOverflowOnAllRanks) {
  const Sent sent = {
      "overflow", 9, 2, {{{1, 3e38f}, {2, 1}}, {{1, 3e38f}, {4, 1}}, {{5, 9}, {6, 8}}}};
  for (const Outcome& outcome : RunOnce(sent)) EXPECT_TRUE(std::isinf(outcome.applied[1]));
}

// --- rounds ---

// Four ranks on two nodes: ranks 0 and 2 send the messages between nodes.
TEST(Gtopk, RoundsByHand) {
  const RoundPlan plan = MakeGtopk()->Rounds(SizesOf({80, 80, 80, 80}), {4, 2});
  ASSERT_EQ(plan.rounds.size(), 4u);
  const std::vector<LinkClass> links = {LinkClass::kIntraNode, LinkClass::kInterNode,
                                        LinkClass::kInterNode, LinkClass::kIntraNode};
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Round& round = plan.rounds[i];
    EXPECT_EQ(round.link, links[i]) << i;
    EXPECT_EQ(round.bytes, 80u) << i;
    EXPECT_EQ(round.node_bytes, links[i] == LinkClass::kInterNode ? 80u : 0u) << i;
    EXPECT_EQ(round[Work::kSelect], i < 2 ? 20u : 0u) << i;
  }
  // Its own payload, the result, and the dropped elements of two rounds.
  EXPECT_EQ(plan.rounds[3][Work::kMerge], 40u);
  EXPECT_EQ(plan.sums, 10u);
}

// Bytes on the critical path an element of the model, published for 8 and for 16 bytes an entry.
TEST(Gtopk, SendsThePublishedBytes) {
  const struct {
    double density;
    int ranks;
    double bytes, doubles;
  } published[] = {{.001, 8, 0.048, 0.096}, {.01, 8, 0.48, 0.96}, {.01, 16, 0.64, 1.28},
                   {.05, 8, 2.4, 4.8},      {.1, 8, 4.8, 9.6},    {.1, 16, 6.4, 12.8}};
  constexpr double kElements = 1e6;
  for (const auto& [density, ranks, bytes, doubles] : published) {
    const std::vector<std::uint64_t> payloads(static_cast<std::size_t>(ranks),
                                              static_cast<std::uint64_t>(density * kElements) * 8);
    for (const auto& [wire, expected] : {std::pair{"f32", bytes}, {"f64", doubles}}) {
      double sum = 0;
      const auto collective = MakeGtopk({{"wire", std::string(wire)}});
      for (const Round& round : collective->Rounds(SizesOf(payloads), {ranks, 1}).rounds) {
        sum += static_cast<double>(round.bytes);
      }
      EXPECT_NEAR(sum / kElements, expected, 1e-9) << density << " on " << ranks << " ranks";
    }
  }
}

// The published seconds of a step. Each of three merges selects among 2 k elements, at 30 us + 0.1
// ns an element. k elements of 8 bytes cross a bus of 12 GB/s twice.
TEST(Gtopk, TakesThePublishedSeconds) {
  const auto seconds = [](const testing::TimedTensors& tensors, double density, const char* wire) {
    CostModel cost;
    cost.host_work_seconds[Work::kSelect] = 1e-10;
    cost.exchange_dispatch_seconds = 3 * 3e-5;
    cost.host_work_seconds[Work::kToHost] = 4 / 12e9;
    cost.host_work_seconds[Work::kToDevice] = 4 / 12e9;
    return testing::GoldenStepSeconds(tensors, density, MakeGtopk({{"wire", std::string(wire)}}),
                                      cost);
  };
  EXPECT_NEAR(seconds(testing::Synthetic(), .01, "f32"), 0.081638, 1e-6);
  EXPECT_NEAR(seconds(testing::Synthetic(), .1, "f32"), 0.237852, 1e-6);
  EXPECT_NEAR(seconds(testing::Synthetic(), .01, "f64"), 0.098155, 1e-6);
  EXPECT_NEAR(seconds(testing::Synthetic(), .1, "f64"), 0.403021, 1e-6);
  EXPECT_NEAR(seconds(testing::MeasuredVgg16(), .01, "f64"), 0.2512, 1e-4);
  EXPECT_NEAR(seconds(testing::MeasuredVgg16(), .1, "f64"), 1.2318, 1e-4);
}

// --- errors ---

// Rank 1 sends one element, rank 0 two.
TEST(Gtopk, NamesTheRankWhoseCountDiffers) {
  const auto exchange = [](ProgressLoop& loop) {
    const std::vector<float> own(4);
    std::vector<float> gathered(8);
    ExchangeBuffers buffers;
    buffers.own = std::as_bytes(std::span(own));
    buffers.gathered = std::as_writable_bytes(std::span(gathered));
    buffers.capacity_bytes = buffers.own.size();
    const auto collective = MakeGtopk();
    loop.RunBlocking([&](Communicator& world) -> Task {
      if (world.rank() == 0) {
        co_await collective->Run(world, buffers, 32);
      } else {
        co_await Complete(world.Isend(0, 32, buffers.own.first(8)));
      }
    });
  };
  EXPECT_EQ(testing::ErrorOf([&] { testing::RunRanks(2, 1, testing::kExchangeDeadline, exchange); },
                             FailureKind::kComm),
            "gtopk: 8 bytes from rank 1: expected 16 as here; ranks have selected different "
            "counts");
}

TEST(Gtopk, RefusesSparsifiersWhoseCountsDiffer) {
  MethodParts parts;
  parts.strategy = "behind";
  parts.planner = "whole-model";
  parts.collective = "gtopk";
  parts.sparsifier = &FindSparsifier("dgc");
  parts.sparsifier_options = ResolveOptions("dgc", parts.sparsifier->options, {});
  parts.density = 0.01;
  parts.feedback = "residual";
  EXPECT_THROW((void)Compose(parts), Error);
  parts.sparsifier = &FindSparsifier("topk");
  parts.sparsifier_options = {};
  EXPECT_EQ(Compose(parts).sparse_collective->descriptor().name, "gtopk");
}

}  // namespace
}  // namespace sparfuse::baselines
