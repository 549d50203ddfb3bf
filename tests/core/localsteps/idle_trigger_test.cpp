// Tests local steps whose exchanges begin as soon as the channel is idle: what holds at whatever
// steps they are received, and the steps in the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/transport/shaped/shaped.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/methods/counted_steps.hpp"
#include "tests/support/methods/windows.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::size_t kTensors[] = {5, 1, 40, 3, 17, 8, 1, 2};
constexpr std::size_t kElements = 77;

// Sixteenths and small integers: float32 holds a few steps of rate 1/8 exactly.
Windows Idle(Options more, int workers = 2) {
  Windows windows;
  windows.workers = workers;
  windows.tensors.assign(std::begin(kTensors), std::end(kTensors));
  windows.strategy = {{"every", Whole(4)}, {"delay", Whole(1)}, {"trigger", std::string("idle")}};
  for (auto& [key, value] : more) windows.strategy[key] = std::move(value);
  windows.gradient = WholeGradient;
  windows.inner = [] { return Sgd(.125f); };
  windows.start = [](int) { return Sixteenths(kElements); };
  windows.steps = 24;
  // Most exchanges are over in this time, so that some are received.
  windows.before = [](LiveEngine&, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  return windows;
}

std::vector<int> Received(const WindowHistory& rank) {
  std::vector<int> steps;
  for (std::size_t s = 0; s < rank.records.size(); ++s) {
    if (rank.records[s].exchanges > 0) steps.push_back(static_cast<int>(s) + 1);
  }
  return steps;
}

// The fragment of each element, by the plan's dates.
std::vector<std::size_t> FragmentsOfElements(const Windows& windows) {
  std::vector<std::size_t> of;
  const Plan plan = windows.MakePlan();
  for (const Unit& unit : plan.units) {
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      of.insert(of.end(), windows.tensors[t], unit.date);
    }
  }
  return of;
}

// Trains by the papers' equations, in steps that are given. momentum: Nesterov's outer rule, of
// rate .5; none: the average.
struct Reference {
  std::vector<Floats> w;
  Floats a, b;
};

Reference TrainAt(const std::vector<int>& received, const Windows& windows, float mix,
                  std::optional<float> momentum, bool finish) {
  const auto ranks = static_cast<std::size_t>(windows.workers);
  const std::vector<std::size_t> fragment_of = FragmentsOfElements(windows);
  const std::size_t fragments = *std::ranges::max_element(fragment_of) + 1;
  Reference now{std::vector<Floats>(ranks, windows.start(0)), windows.start(0), Floats(kElements)};
  std::vector<Floats> sent;
  std::size_t fragment = fragments - 1;
  const auto send = [&] {
    fragment = (fragment + 1) % fragments;
    sent = now.w;
    if (!momentum) return;
    for (Floats& each : sent) {
      for (std::size_t i = 0; i < kElements; ++i) each[i] = now.a[i] - each[i];
    }
  };
  const auto receive = [&] {
    for (std::size_t i = 0; i < kElements; ++i) {
      if (fragment_of[i] != fragment) continue;
      float average = 0;
      for (const Floats& each : sent) average += each[i];
      average /= static_cast<float>(ranks);
      if (momentum) {
        now.b[i] = *momentum * now.b[i] + average;
        now.a[i] -= .5f * (average + *momentum * now.b[i]);
      } else {
        now.a[i] = average;
      }
      for (Floats& w : now.w) w[i] = now.a[i] + mix * (w[i] - now.a[i]);
    }
  };
  std::vector<Inner> inner;
  for (std::size_t r = 0; r < ranks; ++r) inner.push_back(windows.inner());
  for (int t = 1; t <= windows.steps; ++t) {
    for (std::size_t r = 0; r < ranks; ++r) {
      inner[r](now.w[r], windows.gradient(static_cast<int>(r), now.w[r], t), t);
    }
    const bool comes = std::ranges::find(received, t) != received.end();
    if (comes) receive();
    if (comes || t == 1) send();
  }
  if (finish) receive();
  return now;
}

void ExpectNear(const Floats& got, const Floats& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << what << i;
}

TEST(IdleTrigger, ReceivesAtOneStepOnAllRanksWhatTheEquationsSay) {
  for (const int workers : {1, 2, 3}) {
    for (const int fragments : {1, 2}) {
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(std::to_string(workers) + ", " + std::to_string(fragments) +
                     (nesterov ? ", nesterov" : ", average"));
        Windows windows = Idle({{"mix", .5}}, workers);
        if (nesterov) {
          windows.strategy["outer"] = std::string("nesterov");
          windows.strategy["outer_rate"] = .5;
          windows.strategy["outer_momentum"] = .75;
        }
        windows.planner = {{"fragments", Whole(fragments)}};
        const auto ranks = Train(windows);
        const std::vector<int> received = Received(ranks[0]);
        EXPECT_FALSE(received.empty());
        const std::optional<float> momentum = nesterov ? std::optional(.75f) : std::nullopt;
        const Reference last = TrainAt(received, windows, .5f, momentum, false);
        const Reference finished = TrainAt(received, windows, .5f, momentum, true);
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          EXPECT_EQ(Received(ranks[r]), received);
          EXPECT_EQ(ranks[r].anchors, ranks[0].anchors);
          EXPECT_EQ(ranks[r].outer, ranks[0].outer);
          ExpectNear(ranks[r].parameters.back(), last.w[r], "w ");
          ExpectNear(ranks[r].anchors.back(), last.a, "a ");
          if (nesterov) ExpectNear(ranks[r].outer.back(), last.b, "b ");
          // An exchange is always under way, and the end receives it.
          EXPECT_EQ(ranks[r].finish.exchanges, 1u);
          ExpectNear(ranks[r].finished, finished.w[r], "finished w ");
          ExpectNear(ranks[r].finished_anchor, finished.a, "finished a ");
        }
      }
    }
  }
}

TEST(IdleTrigger, ReceivesNotBeforeTheDelay) {
  Windows windows = Idle({{"delay", Whole(5)}});
  const std::vector<int> received = Received(Train(windows)[0]);
  ASSERT_FALSE(received.empty());
  int sent = 1;
  for (const int step : received) {
    EXPECT_GE(step, sent + 5);
    sent = step;
  }
}

// A rank begins a step late, at which all others know the exchange as over: nobody receives it
// without the late rank.
TEST(IdleTrigger, RanksAgreeAlsoIfOneIsLate) {
  Windows windows = Idle({}, 3);
  windows.before = [](LiveEngine& engine, int t) {
    if (engine.rank() == t % 3) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  };
  const auto ranks = Train(windows);
  EXPECT_FALSE(Received(ranks[0]).empty());
  for (const auto& rank : ranks) {
    EXPECT_EQ(Received(rank), Received(ranks[0]));
    EXPECT_EQ(rank.anchors, ranks[0].anchors);
  }
}

TEST(IdleTrigger, ARankThatFailsEndsTheOthers) {
  Windows windows = Idle({});
  windows.deadline = std::chrono::milliseconds(500);
  windows.before = [](LiveEngine& engine, int t) {
    if (engine.rank() == 1 && t == 5) SPARFUSE_THROW(kInternal, "rank 1 is gone");
  };
  EXPECT_THROW(Train(windows), Error);
}

TEST(IdleTrigger, WhatHasNoMeaningIsRefused) {
  const auto with = [](Options strategy) {
    strategy["trigger"] = std::string("idle");
    const StrategyDescriptor& part = FindStrategy("local-steps");
    return ErrorOf([&] { LocalStepsOf(ResolveOptions("local-steps", part.options, strategy)); });
  };
  EXPECT_SAYS(with({}), "delay = 0 with trigger = idle");
  EXPECT_SAYS(with({{"delay", Whole(1)}, {"first", std::string("long")}}), "which has no dates");
  // A delay of a window is a least delay, not a lag: windows begin at no anchor.
  EXPECT_EQ(with({{"every", Whole(4)}, {"delay", Whole(4)}, {"mix", .5}}), "no error");
}

// An exchange takes 0.3 s, and 0.9 s pass before step 2.
TEST(IdleTrigger, AnExchangeMayHaveNoTimeBetweenSteps) {
  Windows windows = Idle({});
  windows.steps = 2;
  windows.wrap = [](std::unique_ptr<Communicator> world) {
    return MakeShaped(std::move(world), {{.gbps = 1, .alpha_seconds = .15}},
                      std::chrono::seconds(60));
  };
  windows.before = [](LiveEngine&, int t) {
    if (t == 2) std::this_thread::sleep_for(std::chrono::milliseconds(900));
  };
  const auto trained = Train(windows);
  EXPECT_EQ(Received(trained[0]), (std::vector<int>{2}));
  windows.pauses = true;
  const auto paused = Train(windows);
  for (const WindowHistory& rank : paused) {
    EXPECT_EQ(Received(rank), std::vector<int>{});
    EXPECT_EQ(rank.finish.exchanges, 1u);  // which is received in the end, with the same values
    EXPECT_EQ(rank.finished_anchor, trained[0].anchors[1]);
  }
}

// --- the model

std::vector<std::uint64_t> Selected(const std::vector<ModelStep>& steps) {
  std::vector<std::uint64_t> selected;
  for (const ModelStep& step : steps) {
    EXPECT_EQ(step.records.front().selected, step.records.back().selected);
    selected.push_back(step.records[0].selected);
  }
  return selected;
}

// A step of one tensor takes 12.5 ms. Two ranks send 1 MB in 8 ms, and twice as much in 16 ms.
TEST(ModelledIdleTrigger, ReceivesAtTheFirstStepThatBeginsWithTheResult) {
  Windows windows = Idle({});
  windows.tensors = {250'000};
  for (const int traced : {0, 2}) {
    const std::uint64_t n = 250'000;
    const auto fast = SimulateSteps(ModelOf(windows), 0, 9, traced);
    EXPECT_EQ(Selected(fast), (std::vector<std::uint64_t>{0, 0, n, 0, n, 0, n, 0, n}));
    for (const ModelStep& step : fast) {
      EXPECT_EQ(step.records[0].exposed_communication_seconds, 0);
      EXPECT_EQ(step.records[0].sent_bytes, 4 * step.records[0].selected);
    }
  }
  windows.tensors = {500'000};
  const std::uint64_t n = 500'000;
  EXPECT_EQ(Selected(SimulateSteps(ModelOf(windows), 0, 8, 0)),
            (std::vector<std::uint64_t>{0, 0, 0, n, 0, 0, n, 0}));
  windows.strategy["delay"] = Whole(4);
  EXPECT_EQ(Selected(SimulateSteps(ModelOf(windows), 0, 10, 0)),
            (std::vector<std::uint64_t>{0, 0, 0, 0, n, 0, 0, 0, n, 0}));
}

TEST(ModelledIdleTrigger, SendsFragmentsInTurn) {
  Windows windows = Idle({});
  windows.tensors = {100'000, 300'000};
  windows.planner = {{"fragments", Whole(2)}};
  // A step takes 13.5 ms, the exchanges 3.2 and 9.6 ms.
  EXPECT_EQ(Selected(SimulateSteps(ModelOf(windows), 0, 9, 0)),
            (std::vector<std::uint64_t>{0, 0, 100'000, 0, 300'000, 0, 100'000, 0, 300'000}));
}

TEST(ModelledIdleTrigger, CountsAnExchangeAsALiveRunDoes) {
  Windows windows = Idle({}, 3);
  const auto live = Train(windows);
  const auto steps = SimulateSteps(ModelOf(windows), 0, 3, 0);
  ASSERT_EQ(steps[2].records[0].exchanges, 1u);
  for (std::size_t r = 0; r < live.size(); ++r) {
    for (const int at : Received(live[r])) {
      ExpectSameCounts(steps[2].records[r], live[r].records[static_cast<std::size_t>(at) - 1]);
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing
