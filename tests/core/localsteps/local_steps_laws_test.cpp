// Tests the laws of local steps that hold for any numbers, and their model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/errors.hpp"
#include "tests/support/methods/counted_steps.hpp"
#include "tests/support/methods/windows.hpp"

namespace sparfuse::testing {
namespace {

std::string Text(const char* value) { return value; }

// Eight tensors of one or several elements. float32 holds the gradients and parameters exactly for
// a few steps of rate 1/8: sixteenths and small integers.
Windows Dyadic(Options strategy, int workers = 2) {
  Windows windows;
  windows.workers = workers;
  windows.tensors = {5, 1, 40, 3, 17, 8, 1, 2};
  windows.strategy = std::move(strategy);
  windows.gradient = WholeGradient;
  windows.inner = [] { return Sgd(.125f); };
  windows.start = [](int) { return Sixteenths(77); };
  windows.steps = 6;
  return windows;
}

Windows WithSameBatches(Windows windows) {
  windows.gradient = [of = windows.gradient](int, const Floats& w, int t) { return of(0, w, t); };
  return windows;
}

// The parameters of a rank that trains on its own gradients alone.
Floats Alone(const Windows& windows, int rank) {
  Floats w = windows.start(rank);
  const Inner inner = windows.inner();
  for (int t = 1; t <= windows.steps; ++t) {
    const Floats gradient = windows.gradient(rank, w, t);
    inner(w, gradient, t);
  }
  return w;
}

// L1: a window of one step with outer SGD of rate 1 is dense SGD.
TEST(LocalStepsLaws, WindowsOfOneStepAreDenseTraining) {
  for (const int workers : {1, 2, 4}) {
    const Windows windows = Dyadic({{"every", Whole(1)}, {"outer", Text("sgd")}}, workers);
    Floats w = windows.start(0);
    for (int t = 1; t <= windows.steps; ++t) {
      Floats mean(w.size());
      for (int rank = 0; rank < workers; ++rank) {
        const Floats gradient = windows.gradient(rank, w, t);
        for (std::size_t i = 0; i < w.size(); ++i)
          mean[i] += gradient[i] / static_cast<float>(workers);
      }
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= .125f * mean[i];
    }
    for (const auto& rank : Train(windows)) EXPECT_EQ(rank.parameters.back(), w) << workers;
  }
}

// L2: an average over one rank changes nothing.
TEST(LocalStepsLaws, OneRankTrainsAsAlone) {
  for (const int every : {1, 2, 3}) {
    Windows windows = Dyadic({{"every", Whole(every)}}, 1);
    windows.inner = [] { return Sgd(.1f, .9f); };
    EXPECT_EQ(Train(windows)[0].parameters.back(), Alone(windows, 0)) << every;
  }
}

// L3, L4: equal batches on all ranks.
TEST(LocalStepsLaws, RanksThatDoTheSameTrainAsAlone) {
  for (const int workers : {2, 4}) {
    for (const char* outer : {"average", "sgd"}) {
      Windows windows =
          WithSameBatches(Dyadic({{"every", Whole(3)}, {"outer", Text(outer)}}, workers));
      for (const auto& rank : Train(windows)) {
        EXPECT_EQ(rank.parameters.back(), Alone(windows, 0)) << outer << workers;
      }
    }
  }
}

TEST(LocalStepsLaws, NesterovWithoutMomentumIsSgd) {
  const auto with = [](const char* outer) {
    return Train(Dyadic({{"every", Whole(2)}, {"outer", Text(outer)}, {"outer_rate", .7}}));
  };
  const auto sgd = with("sgd"), nesterov = with("nesterov"), momentum = with("momentum");
  for (std::size_t rank = 0; rank < sgd.size(); ++rank) {
    EXPECT_EQ(sgd[rank].parameters, nesterov[rank].parameters);
    EXPECT_EQ(sgd[rank].parameters, momentum[rank].parameters);
  }
}

// L4: ranks that ignore the anchor train as if alone, and the anchor still moves.
TEST(LocalStepsLaws, MixOfOneIgnoresTheAnchor) {
  Windows windows =
      Dyadic(WindowOptions{.every = 2, .outer = "nesterov", .mix = 1, .momentum = .9});
  const auto ranks = Train(windows);
  for (int rank = 0; rank < 2; ++rank) {
    const WindowHistory& history = ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(history.parameters.back(), Alone(windows, rank));
    EXPECT_NE(history.anchors.back(), windows.start(rank));
  }
}

// L6: shared state is equal on all ranks; with a mix, the trained parameters differ.
TEST(LocalStepsLaws, AnchorsAreEqualAndMixedParametersDiffer) {
  for (const int workers : {2, 3, 5}) {
    for (const double mix : {0.0, .5}) {
      Windows windows = Dyadic(WindowOptions{4, 1, "nesterov", mix, .4, .9}, workers);
      windows.planner = {{"fragments", Whole(2)}, {"stripes", Whole(2)}};
      windows.steps = 12;
      const auto ranks = Train(windows);
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank.anchors, ranks[0].anchors);
        EXPECT_EQ(rank.outer, ranks[0].outer);
      }
      EXPECT_NE(ranks[1].parameters[11], ranks[0].parameters[11]);
      // Without a mix, the fragment just received equals the anchor on all ranks.
      std::size_t equal = 0;
      for (std::size_t i = 0; i < 77; ++i) {
        equal += ranks[1].parameters[11][i] == ranks[1].anchors[11][i];
      }
      EXPECT_EQ(equal > 20, mix == 0) << equal;
    }
  }
}

// L7: seeds, threads and evaluation change nothing.
TEST(LocalStepsLaws, ARunIsRepeatedBitForBit) {
  Windows windows = Dyadic(WindowOptions{4, 1, "nesterov", .5, 1, .9}, 3);
  windows.planner = {{"fragments", Whole(2)}};
  windows.steps = 10;
  windows.inner = [] { return Sgd(.1f, .9f); };
  const auto first = Train(windows);
  windows.before = [](LiveEngine& engine, int t) {
    if (t % 3 == 0) {  // evaluates the anchor, also during an exchange
      engine.SwapAnchor();
      engine.SwapAnchor();
    }
  };
  const auto second = Train(windows);
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    EXPECT_EQ(first[rank].parameters, second[rank].parameters);
    EXPECT_EQ(first[rank].anchors, second[rank].anchors);
    EXPECT_EQ(first[rank].finished, second[rank].finished);
  }
}

// L10, and the bytes of each date.
TEST(LocalStepsLaws, StepsBetweenDatesSendNothing) {
  Windows windows = Dyadic({{"every", Whole(6)}, {"delay", Whole(1)}}, 3);
  windows.planner = {{"fragments", Whole(2)}};
  windows.steps = 12;
  for (const auto& rank : Train(windows)) {
    std::uint64_t elements = 0;
    for (int t = 1; t <= windows.steps; ++t) {
      const StepRecord& record = rank.records[static_cast<std::size_t>(t - 1)];
      const bool received = t % 3 == 0;
      EXPECT_EQ(record.exchanges, received ? 1u : 0u) << t;
      EXPECT_EQ(record.messages_sent, received ? 4u : 0u) << t;
      elements += record.selected;
    }
    EXPECT_EQ(elements, 2u * 77);
    EXPECT_EQ(rank.finish.exchanges, 0u);
  }
}

// Finish receives an exchange that is still under way.
TEST(LocalStepsLaws, FinishReceivesWhatIsUnderWay) {
  Windows windows = Dyadic({{"every", Whole(4)}, {"delay", Whole(2)}, {"outer", Text("sgd")}});
  windows.steps = 7;
  const auto ended = Train(windows);
  windows.steps = 8;
  const auto next = Train(windows);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].finish.exchanges, 1u);
    EXPECT_EQ(ended[rank].finished_anchor, next[rank].anchors[7]);
    EXPECT_EQ(next[rank].finish.exchanges, 0u);
  }
}

TEST(LocalStepsLaws, TheFirstWindowMayBeLong) {
  Windows windows = Dyadic({{"every", Whole(4)}, {"first", Text("long")}});
  windows.planner = {{"fragments", Whole(2)}};
  windows.steps = 8;
  const auto ranks = Train(windows);
  const std::vector<std::uint64_t> expected = {0, 0, 0, 1, 0, 1, 0, 1};
  for (std::size_t t = 0; t < expected.size(); ++t) {
    EXPECT_EQ(ranks[0].records[t].exchanges, expected[t]) << t;
  }
}

// A late rank neither waits nor breaks the run; the others wait for it. A failed rank is an error
// on the others.
TEST(LocalStepsLaws, ARankMayBeLateByAWindow) {
  Windows windows = Dyadic({{"every", Whole(4)}});
  windows.steps = 8;
  windows.before = [](LiveEngine& engine, int) {
    if (engine.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  const auto late = Train(windows);
  windows.before = [](LiveEngine&, int) {};
  EXPECT_EQ(late[0].parameters, Train(windows)[0].parameters);
}

TEST(LocalStepsLaws, ARankThatFailsEndsTheOthers) {
  for (const int at : {2, 4, 5}) {  // before the send, during the exchange, before its receipt
    Windows windows = Dyadic({{"every", Whole(6)}, {"delay", Whole(2)}});
    windows.deadline = std::chrono::milliseconds(500);
    windows.steps = 12;
    windows.before = [at](LiveEngine& engine, int t) {
      if (engine.rank() == 1 && t == at) SPARFUSE_THROW(kInternal, "rank 1 is gone");
    };
    EXPECT_THROW(Train(windows), Error) << at;
  }
}

// No rank waits for an exchange that another one does not begin.
TEST(LocalStepsLaws, RanksWithOtherDatesAreRefusedBeforeTheFirstStep) {
  const auto dates = [](Options strategy, Options planner) {
    Windows windows = Dyadic(std::move(strategy));
    windows.planner = std::move(planner);
    return windows;
  };
  const Windows all = dates({{"every", Whole(4)}}, {{"fragments", Whole(2)}});
  const std::pair<Windows, std::string> others[] = {
      {dates({{"every", Whole(6)}}, {{"fragments", Whole(2)}}), "every is "},
      {dates({{"every", Whole(4)}, {"delay", Whole(1)}}, {{"fragments", Whole(2)}}), "delay is "},
      {dates({{"every", Whole(4)}}, {{"fragments", Whole(4)}}), "the plan's hash is "}};
  for (const auto& each : others) {
    ExpectError(FailureKind::kConfig, {each.second, "the same dates on all of them"}, [&] {
      RunRanks(3, 1, std::chrono::seconds(60), [&](ProgressLoop& loop) {
        ThreadPool pool(1);
        LiveEngine engine((loop.rank() == 1 ? each.first : all).Configure(), loop, pool);
      });
    });
  }
}

TEST(LocalStepsLaws, WhatIsNotFiniteIsNamed) {
  Windows windows = Dyadic({{"every", Whole(4)}, {"outer", Text("sgd")}});
  windows.gradient = [of = windows.gradient](int rank, const Floats& w, int t) {
    Floats gradient = of(rank, w, t);
    if (rank == 0 && t == 2) gradient[5] = std::numeric_limits<float>::quiet_NaN();
    return gradient;
  };
  windows.deadline = std::chrono::milliseconds(500);
  ExpectError(FailureKind::kNumeric, {"t1", "step 3, in window 0"}, [&] {
    Windows checked = windows;
    checked.workers = 1;
    Train(checked);
  });
}

TEST(LocalStepsLaws, WindowsThatDoNotFitAreRefused) {
  const auto dates = [](Options strategy, std::size_t fragments) {
    const StrategyDescriptor& part = FindStrategy("local-steps");
    return ErrorOf([&] {
      FragmentDates(LocalStepsOf(ResolveOptions("local-steps", part.options, strategy)), fragments);
    });
  };
  EXPECT_SAYS(dates({{"every", Whole(5)}}, 2), "every = 5 with 2 fragments");
  EXPECT_SAYS(dates({{"every", Whole(4)}, {"delay", Whole(2)}}, 2), "delay = 2");
  EXPECT_SAYS(dates({{"every", Whole(4)}, {"delay", Whole(5)}}, 1), "delay = 5");
  EXPECT_SAYS(dates({{"every", Whole(4)}, {"delay", Whole(4)}, {"mix", .5}}, 1), "mix = 0.5");
  EXPECT_SAYS(dates({{"every", Whole(4)}, {"outer_momentum", .5}}, 1), "outer_momentum");
  EXPECT_EQ(dates({{"every", Whole(4)}, {"delay", Whole(4)}}, 1), "no error");
  EXPECT_EQ(dates({{"every", Whole(4)}, {"delay", Whole(3)}}, 1), "no error");
}

// --- fragments

Plan FragmentsOf(const std::vector<std::size_t>& tensors, Options options) {
  const GradientLayout layout = LayoutOf(tensors);
  return PlanOf(kFragmentsPlanner, {layout, {1, 1}}, options);
}

std::vector<int> DatesOf(const Plan& plan) {
  std::vector<int> dates;
  for (const Unit& unit : plan.units) dates.push_back(unit.date);
  return dates;
}

TEST(Fragments, AreRunsOfAboutEqualSizesInTurn) {
  const Plan plan = FragmentsOf({10, 10, 10, 10, 10, 10, 10, 10},
                                {{"fragments", Whole(2)}, {"stripes", Whole(2)}});
  EXPECT_EQ(plan.UnitSizes(), "2,2,2,2");
  EXPECT_EQ(DatesOf(plan), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(FragmentsOf({100, 1, 1, 1, 1, 1}, {{"fragments", Whole(3)}}).UnitSizes(), "1,1,4");
  EXPECT_EQ(FragmentsOf({1, 1, 1, 100}, {{"fragments", Whole(4)}}).UnitSizes(), "1,1,1,1");
  EXPECT_EQ(FragmentsOf({4, 4}, {{"fragments", Whole(2)}, {"stripes", Whole(9)}}).UnitSizes(),
            "1,1");
}

TEST(Fragments, MayBeGiven) {
  const Plan plan =
      FragmentsOf({1, 2, 3, 4}, {{"fragments", Whole(2)}, {"runs", Text("1:1,2:0,1:1")}});
  EXPECT_EQ(plan.UnitSizes(), "1,2,1");
  EXPECT_EQ(DatesOf(plan), (std::vector<int>{1, 0, 1}));
  for (const char* bad : {"4:2", "3:0,1", "2:0,1:1", "4:0", "2:0,3:1", "x", "2:0,2:1,"}) {
    EXPECT_THROW(FragmentsOf({1, 2, 3, 4}, {{"fragments", Whole(2)}, {"runs", Text(bad)}}), Error)
        << bad;
  }
  EXPECT_THROW(FragmentsOf({1, 2}, {{"fragments", Whole(3)}}), Error);
}

TEST(Fragments, AreOfTheHashOfAPlan) {
  Plan plan = FragmentsOf({1, 1}, {{"fragments", Whole(2)}});
  const std::uint64_t hash = plan.Hash();
  std::swap(plan.units[0].date, plan.units[1].date);
  EXPECT_NE(plan.Hash(), hash);
}

// --- the model

// L9: the model counts the same payloads in each step as the live run.
TEST(ModelledLocalSteps, CountWhatIsSent) {
  for (const int workers : {1, 2, 3}) {
    for (const int delay : {0, 1, 4}) {
      SCOPED_TRACE(std::to_string(workers) + ", " + std::to_string(delay));
      Windows windows = Dyadic(
          {{"every", Whole(4)}, {"delay", Whole(delay)}, {"outer", Text("nesterov")}}, workers);
      if (delay < 4) windows.planner = {{"fragments", Whole(2)}, {"stripes", Whole(2)}};
      const auto live = Train(windows);
      const ModelConfig model = ModelOf(windows);
      EXPECT_EQ(MethodMemoryBytes(model), live[0].memory);
      // Anchor and momentum of 77 elements, and the larger fragment, of the runs 6, 40, 20 and 11.
      EXPECT_EQ(live[0].memory, 4 * (2 * 77 + (delay < 4 ? 40u + 11 : 77u)));
      for (const int traced : {0, workers}) {
        const auto steps = SimulateSteps(model, 0, windows.steps, traced);
        ASSERT_EQ(steps.size(), static_cast<std::size_t>(windows.steps));
        ExpectSameCounts(steps, live);
      }
    }
  }
}

double Seconds(const std::vector<ModelStep>& steps) {
  double sum = 0;
  for (const ModelStep& step : steps) sum += step.records[0].step_seconds;
  return sum;
}

double Exposed(const std::vector<ModelStep>& steps) {
  double sum = 0;
  for (const ModelStep& step : steps) sum += step.records[0].exposed_communication_seconds;
  return sum;
}

TEST(ModelledLocalSteps, HideAnExchangeBehindTheStepsOfItsDelay) {
  Windows windows = Dyadic({{"every", Whole(8)}});
  windows.tensors = {250'000};
  const auto blocking = SimulateWindow(ModelOf(windows), 0);
  ASSERT_EQ(blocking.size(), 8u);
  // A ring of two ranks sends 1 MB at 1 Gbit/s: 8 ms plus start-up, none of it hidden.
  EXPECT_NEAR(Exposed(blocking), 0.008 + 2e-4, 2e-4);
  windows.strategy["delay"] = Whole(1);  // a step takes 13 ms and more
  const auto hidden = SimulateWindow(ModelOf(windows), 0);
  EXPECT_EQ(Exposed(hidden), 0);
  EXPECT_NEAR(Seconds(blocking) - Seconds(hidden), Exposed(blocking), 1e-9);
  // Longer windows have less communication a step.
  windows.strategy = {{"every", Whole(32)}};
  const auto seldom = SimulateWindow(ModelOf(windows), 0);
  EXPECT_NEAR(Exposed(seldom), Exposed(blocking), 1e-9);
  EXPECT_LT(Seconds(seldom) / 32, Seconds(blocking) / 8);
}

// Without communication, each step lasts as long as a step of one rank.
TEST(ModelledLocalSteps, AreComputationBetweenDates) {
  Windows windows = Dyadic({{"every", Whole(8)}});
  const auto steps = SimulateWindow(ModelOf(windows), 2);
  for (std::size_t s = 0; s + 1 < steps.size(); ++s) {
    const StepRecord& record = steps[s].records[0];
    EXPECT_EQ(record.exposed_communication_seconds, 0);
    EXPECT_NEAR(record.step_seconds, 0.01 + 8 * 0.001 + 0.0005 + 0.001, 1e-9);
  }
  EXPECT_GT(steps.back().records[0].step_seconds, steps.front().records[0].step_seconds);
  for (const Span& span : steps.back().spans[0]) {
    EXPECT_GE(span.begin_seconds, 0);
    EXPECT_LE(span.end_seconds, steps.back().records[0].step_seconds + 1e-12);
  }
}

}  // namespace
}  // namespace sparfuse::testing
