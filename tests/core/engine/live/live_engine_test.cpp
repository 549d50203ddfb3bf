// Tests LiveEngine under bad timing: late timers, unfinished steps, failed splits.
#include "core/engine/live/live_engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/communicators/forwarding_communicator.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::testing {
namespace {

// Sends the second half in a timer that comes due while the reaction to the first half is running.
class LateTimer final : public Strategy {
 public:
  void StepBegin(Engine&) override { packed_.clear(); }
  void GradientReady(Engine& engine, std::size_t tensor) override {
    packed_.push_back(engine.Pack({tensor}));
  }
  void BackwardEnd(Engine& engine) override {
    const std::size_t half = engine.layout().tensor(engine.layout().tensors() / 2).offset;
    Send(engine, {0, half}, [this, &engine, half] {
      engine.StartTimer(20e-6, [this, &engine, half] {
        Send(engine, {half, engine.layout().numel()}, {});
      });
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
      while (std::chrono::steady_clock::now() < end) {
      }
    });
  }

 private:
  void Send(Engine& engine, Range range, Continuation applied) {
    const Handle sum = engine.Exchange({.pattern = DenseSum{{range}}, .order = {.after = packed_}});
    engine.Apply({.exchange = sum, .order = {.then = std::move(applied)}});
  }

  std::vector<Handle> packed_;
};

class LiveEngineTest : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, LiveEngineTest, ::testing::Values(Device{}, kEmulated),
                         [](const auto& instance) { return NameOf(instance.param); });

TEST_P(LiveEngineTest, TimerThatComesDueInAReactionIsNotLost) {
  const auto configure = [] {
    LiveConfig config =
        DenseLive({{Unit{0, kTensorSizes.size(), Sparsified::kNever, 1.0}}}, {2, 1}, GetParam());
    config.strategy = std::make_unique<LateTimer>();
    return config;
  };
  for (int run = 0; run < 20; ++run) {
    const auto results = RunLive(configure, 2, IntegerGradient);
    for (const double lost : LostMass(results)) ASSERT_EQ(lost, 0.0);
  }
}

// Starts nothing, like a step that only measures: no step ends with work under way.
class Idle final : public Strategy {
 public:
  void GradientReady(Engine& /*engine*/, std::size_t /*tensor*/) override {}
};

TEST_P(LiveEngineTest, AStepThatHasNotEndedLetsNoOtherBegin) {
  RunRanks(1, 1, kLiveDeadline, [](ProgressLoop& loop) {
    LiveConfig config;
    config.device = GetParam();
    config.layout.Add("weight", {4}, 4);
    config.plan = {{Unit{0, 1, Sparsified::kNever, 1.0}}};
    config.strategy = std::make_unique<Idle>();
    ThreadPool pool(1);
    LiveEngine engine(std::move(config), loop, pool);
    for (std::uint64_t step = 0; step < 3; ++step) {
      engine.BeginStep(step, false);
      engine.EndBackward();
      ExpectError(FailureKind::kInternal, {}, [&] { engine.BeginStep(step + 1, false); });
      engine.BeginUpdate();
      engine.EndStep();
    }
  });
}

// A world whose third Split fails. Counts communicators that a thread other than their maker
// destroys.
class Failing final : public ForwardingCommunicator {
 public:
  struct Counts {
    std::atomic<int> splits = 0;
    std::atomic<int> strays = 0;
  };
  Failing(std::unique_ptr<Communicator> inner, Counts& counts)
      : ForwardingCommunicator(std::move(inner)), counts_(counts) {}
  ~Failing() override { counts_.strays += std::this_thread::get_id() == made_by_ ? 0 : 1; }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    if (++counts_.splits == 3) SPARFUSE_THROW(kOutOfMemory, "no room for a third");
    return std::make_unique<Failing>(SplitInner(color, key, deadline), counts_);
  }

 private:
  Counts& counts_;
  std::thread::id made_by_ = std::this_thread::get_id();
};

// The transport belongs to the communication thread, even if the engine cannot be made.
TEST_P(LiveEngineTest, SplitThatFailsLeavesItsErrorAndNothingToOtherThreads) {
  Failing::Counts counts;
  RunRanks(
      1, 1, kLiveDeadline,
      [&](ProgressLoop& loop) {
        ThreadPool pool(1);
        LiveConfig config;
        config.device = GetParam();
        config.layout.Add("t", {8}, 8);
        config.plan = {{Unit{0, 1, Sparsified::kNever, 1.0}}};
        config.topology = {1, 1};
        config.strategy = std::make_unique<LateTimer>();
        config.dense_collective = CoreCollective("ring-allreduce");
        EXPECT_EQ(
            ErrorOf([&] { LiveEngine(std::move(config), loop, pool); }, FailureKind::kOutOfMemory),
            "no room for a third");
        EXPECT_EQ(counts.splits, 3);  // for probes, for negotiations, for exchanges
      },
      [&](auto world) { return std::make_unique<Failing>(std::move(world), counts); });
  EXPECT_EQ(counts.strays, 0);
}

}  // namespace
}  // namespace sparfuse::testing
