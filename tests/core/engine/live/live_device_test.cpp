// Tests that the engine on a device gives the host's results bit for bit, and records their times.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "baselines/registry.hpp"
#include "core/device/completion_thread.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/status.hpp"
#include "core/engine/live/lanes/device_resources.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "tests/support/communicators/dropping_collective.hpp"
#include "tests/support/devices/devices.hpp"
#include "tests/support/devices/fake_nccl.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

constexpr double kDensity = 0.05;

struct Case {
  const char* name;
  const char* strategy = "ahead";
  const char* planner = "by-count";
  const char* sparsifier = "topk";
  Feedback feedback = {.kind = FeedbackKind::kResidual};
  PayloadCoding coding = {};
  const char* dense_quantizer = nullptr;  // tensors 0, 2 and 4 are sent whole
  bool drops = false;
};

const Case kCases[] = {
    {.name = "ahead"},
    {.name = "behind", .strategy = "behind"},
    {.name = "dense", .strategy = "dense-units", .feedback = {}},
    {.name = "offloaded", .planner = "ssfusion"},
    {.name = "offloaded_momentum",
     .planner = "ssfusion",
     .feedback = {.kind = FeedbackKind::kMomentum, .clip = 100}},
    {.name = "momentum", .feedback = {.kind = FeedbackKind::kMomentum}},
    {.name = "nesterov_clipped",
     .feedback = {.kind = FeedbackKind::kMomentum,
                  .momentum = {.momentum = 0.5, .nesterov = true},
                  .clip = 100}},
    {.name = "without_feedback", .strategy = "behind", .feedback = {}},
    {.name = "coded", .coding = {ValueCoding::kF16, IndexCoding::kDelta}},
    {.name = "coded_offloaded",
     .planner = "ssfusion",
     .coding = {ValueCoding::kF16, IndexCoding::kU32}},
    {.name = "quantized", .dense_quantizer = "fp16"},
    {.name = "quantized_coded",
     .coding = {ValueCoding::kF32, IndexCoding::kDelta},
     .dense_quantizer = "fp16"},
    {.name = "dropping", .drops = true},
};

LiveConfig Configure(const Case& which, Device device, int workers) {
  const StrategyDescriptor& strategy = FindStrategy(which.strategy);
  const PlannerDescriptor& planner = FindPlanner(which.planner);
  LiveConfig config = SparseLive({}, {workers, 1}, device);
  Options options;
  if (planner.name == "by-count") options["units"] = std::int64_t{3};
  if (planner.name == "ssfusion") {
    options["tensors_per_unit"] = std::int64_t{4};
    options["offload"] = true;
    options["partition"] = std::string("all");
  }
  const BackwardProfile backward = EvenBackward(kTensorSizes.size());
  const CostModel cost = EvenCost();
  config.plan = PlanOf(
      planner.name,
      InputOf(config.layout, config.topology, kDensity, strategy.sparsified, backward, cost, "dgc"),
      options);
  config.strategy = strategy.make(ResolveOptions(strategy.name, strategy.options, {}));
  config.sparsifier = FindSparsifier(which.sparsifier).make({}, 1);
  if (which.dense_quantizer != nullptr) {
    config.dense_quantizer = FindQuantizer(which.dense_quantizer).make({}, 1);
    config.plan.tensors.assign(kTensorSizes.size(), {kDensity, false, false});
    for (const std::size_t t : {0u, 2u, 4u}) config.plan.tensors[t].density = 1;
  }
  if (which.drops) config.sparse_collective = Dropping();
  config.feedback = which.feedback;
  config.coding = which.coding;
  return config;
}

std::vector<RankResult> RunCase(const Case& which, Device device, int workers,
                                const std::function<void(LiveConfig&)>& change = {},
                                const Wrap& wrap = Unwrapped) {
  const auto configure = [&] {
    LiveConfig config = Configure(which, device, workers);
    if (change) change(config);
    return config;
  };
  return RunLive(configure, workers, IntegerGradient, 999, {}, wrap);
}

void ExpectSameResults(const RankResult& results, const RankResult& expected) {
  EXPECT_EQ(results.averaged, expected.averaged);
  EXPECT_EQ(results.residual, expected.residual);
}

std::string NameOfCase(const Case& which, int workers) {
  return std::string(which.name) + "_" + std::to_string(workers);
}

class EveryCase : public ::testing::TestWithParam<std::tuple<Case, int, DeviceKind>> {
 protected:
  void SetUp() override {
    const std::string why = WhyNotOn(std::get<2>(GetParam()));
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(EveryCase, DoesWhatTheHostDoes) {
  const auto& [which, workers, kind] = GetParam();
  const auto expected = RunCase(which, {}, workers);
  const auto results = RunCase(which, {kind, 0}, workers);
  for (std::size_t r = 0; r < results.size(); ++r) {
    ExpectSameResults(results[r], expected[r]);
    EXPECT_EQ(results[r].mass_checks, expected[r].mass_checks);
    EXPECT_EQ(results[r].mass_violations, 0u);
  }
}

const std::vector<int> kWorkers = kSanitized ? std::vector{2} : std::vector{1, 2, 3, 4};
INSTANTIATE_TEST_SUITE_P(All, EveryCase,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(kWorkers), TheDevices()),
                         [](const auto& instance) {
                           return NameOfCase(std::get<0>(instance.param),
                                             std::get<1>(instance.param)) +
                                  (std::get<2>(instance.param) == DeviceKind::kCuda ? "_cuda" : "");
                         });

// --- over a communicator whose messages lie on the device ---

std::unique_ptr<Communicator> NcclOver(std::unique_ptr<Communicator> host) {
  return MakeNcclWorld(FakeNccl::Api(), EmulatedSetup(std::move(host), kLiveDeadline));
}

class OverNccl : public ::testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(OverNccl, DoesWhatTheHostDoes) {
  const auto& [which, workers] = GetParam();
  const auto expected = RunCase(which, {}, workers);
  FakeNccl nccl;
  const auto natively = [](LiveConfig& config) {
    config.dense_collective = CoreCollective("native-allreduce");
    config.sparse_collective = CoreCollective("nccl-allgather");
  };
  const auto results = RunCase(which, kEmulated, workers, natively, NcclOver);
  for (std::size_t r = 0; r < results.size(); ++r) {
    ExpectSameResults(results[r], expected[r]);
    EXPECT_EQ(nccl.Made(static_cast<int>(r)), 2);  // the world and the exchanges' communicator
  }
  EXPECT_EQ(nccl.violations(), std::vector<std::string>());
}

std::vector<Case> CasesThatGather() {
  std::vector<Case> cases;
  for (const Case& which : kCases) {
    if (!which.drops) cases.push_back(which);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, OverNccl,
                         ::testing::Combine(::testing::ValuesIn(CasesThatGather()),
                                            ::testing::Values(1, 2)),
                         [](const auto& instance) {
                           return NameOfCase(std::get<0>(instance.param),
                                             std::get<1>(instance.param));
                         });

// Collectives that work in host memory get host memory, wherever the communicator's messages lie.
TEST(OverNcclStaged, CollectivesInHostMemoryDoWhatTheyDoOnTheHost) {
  constexpr int kBoth = 2;
  for (const Case& which : kCases) {
    SCOPED_TRACE(which.name);
    const auto expected = RunCase(which, {}, kBoth);
    FakeNccl nccl;
    const auto results = RunCase(which, kEmulated, kBoth, {}, NcclOver);
    for (std::size_t r = 0; r < results.size(); ++r) {
      ExpectSameResults(results[r], expected[r]);
      for (std::size_t step = 0; step < results[r].records.size(); ++step) {
        const StepRecord& record = results[r].records[step];
        EXPECT_EQ(record.sent_bytes, expected[r].records[step].sent_bytes);
        EXPECT_EQ(record.messages_sent, expected[r].records[step].messages_sent);
      }
    }
    EXPECT_EQ(nccl.violations(), std::vector<std::string>());
  }
}

// --- timeline ---

TEST(DeviceTimeline, HasEverySpanInOrderAndWithinTheStep) {
  constexpr double kResolution = 2e-6;
  for (const Case& which : {kCases[0], kCases[1], kCases[3]}) {
    SCOPED_TRACE(which.name);
    for (const RankResult& rank : RunCase(which, kEmulated, 2)) {
      for (std::size_t step = 0; step < rank.spans.size(); ++step) {
        const StepRecord& record = rank.records[step];
        std::map<SpanKind, int> kinds;
        double compute_end = 0;
        for (const Span& span : rank.spans[step]) {
          ++kinds[span.kind];
          EXPECT_GE(span.begin_seconds, 0);
          EXPECT_GE(span.end_seconds, span.begin_seconds);
          if (span.lane != LaneName(Lane::kCompute)) continue;
          EXPECT_GE(span.begin_seconds, compute_end - kResolution);
          compute_end = span.end_seconds;
          EXPECT_LE(span.end_seconds, record.step_seconds + kResolution);
        }
        EXPECT_EQ(kinds[SpanKind::kForward], 1);
        EXPECT_GE(kinds[SpanKind::kBackward], static_cast<int>(kTensorSizes.size()) + 1);
        EXPECT_GT(kinds[SpanKind::kSparsify], 0);
        EXPECT_GT(kinds[SpanKind::kExchange], 0);
        EXPECT_EQ(kinds[SpanKind::kDecompress], kinds[SpanKind::kExchange]);
        EXPECT_EQ(kinds[SpanKind::kUpdate], 1);
        const double parts = record.forward_seconds + record.backward_seconds +
                             record.sparsify_seconds + record.exposed_communication_seconds +
                             record.decompress_seconds + record.update_seconds;
        EXPECT_LE(parts, record.step_seconds + kResolution);
        EXPECT_GT(record.sparsify_seconds, 0);
      }
    }
  }
}

// The host sees the step's begin on the device while Resolve waits for its end. The test's clock
// stands at 5 s when the host reads it, and at 105 s when the step ends.
TEST(DeviceTimeline, HostTimeIsThatOfTheEventHoweverLateTheStepEnds) {
  using std::chrono::seconds;
  const DeviceTimeline::Clock::time_point host_begin{};
  std::atomic<int> now = 5;
  std::promise<void> looked;
  std::promise<void> begin;
  std::promise<void> end;
  gpu::EventPool events(kEmulated);
  DeviceTimeline timeline(events, [&] {
    const auto time = host_begin + seconds(now);
    looked.set_value();
    return time;
  });
  gpu::CompletionThread completions;
  const gpu::GpuStream stream(kEmulated);
  timeline.SetCompute(stream.view());
  gpu::emulated::Enqueue(stream.view(), [&] { begin.get_future().wait(); });
  timeline.BeginStep(completions);
  gpu::emulated::Enqueue(stream.view(), [&] { end.get_future().wait(); });
  timeline.EndPart(SpanKind::kBackward, "all");
  Timeline spans;
  spans.Add({SpanKind::kExchange, "data", "", 11, 12, 0});
  std::thread resolving([&] { timeline.Resolve(host_begin, spans); });
  begin.set_value();
  // If Resolve reads the clock only after the step has ended, this wait fails.
  EXPECT_EQ(looked.get_future().wait_for(kLiveDeadline), std::future_status::ready);
  now = 105;
  end.set_value();
  resolving.join();
  ASSERT_EQ(spans.Sorted().size(), 2u);
  for (const Span& span : spans.Sorted()) {
    if (span.kind != SpanKind::kExchange) continue;
    EXPECT_DOUBLE_EQ(span.begin_seconds, 11 - 5);
    EXPECT_DOUBLE_EQ(span.end_seconds, 12 - 5);
  }
}

// The stream is held between the end of backward and the waiting operation. A sleep may last longer
// than requested, but never shorter.
TEST(DeviceTimeline, MeasuresTheWaitForCommunicationOnTheComputeStream) {
  constexpr std::chrono::milliseconds kWait{5};
  gpu::EventPool events(kEmulated);
  DeviceTimeline timeline(events);
  gpu::CompletionThread completions;
  const gpu::GpuStream stream(kEmulated);
  const std::uint64_t bytes = 0;
  timeline.SetCompute(stream.view());
  timeline.BeginStep(completions);
  timeline.EndPart(SpanKind::kBackward, "end");
  const auto waited_for = [&](std::optional<SpanKind> interrupted, const char* label) {
    timeline.SetInterrupted(interrupted);
    gpu::emulated::Enqueue(stream.view(), [=] { std::this_thread::sleep_for(kWait); });
    const gpu::GpuEvent& apply = timeline.Begin(stream.view());
    timeline.End(stream.view(), apply, {SpanKind::kDecompress, "compute", label, 0, 0, 0}, bytes);
  };
  waited_for({}, "while backward lasts");
  waited_for(SpanKind::kExposed, "after it");
  timeline.SetInterrupted({});
  timeline.EndPart(SpanKind::kUpdate, "");
  Timeline spans;
  const double step_seconds = timeline.Resolve(DeviceTimeline::Clock::now(), spans);
  const double exposed = spans.Total(SpanKind::kExposed, "compute");
  EXPECT_GE(exposed, std::chrono::duration<double>(kWait).count());
  EXPECT_LE(exposed, step_seconds - std::chrono::duration<double>(kWait).count());
}

// --- errors ---

// One rank that announces IntegerGradients, with hooks for a test's interference.
class OneRank {
 public:
  explicit OneRank(const Case& which = kCases[0]) : which_(which) {}

  // before(engine, step) runs before a step, after(step, tensor) after an announcement. Returns the
  // error that ended the run, or null after three steps.
  std::unique_ptr<Error> Run(const std::function<void(LiveEngine&, int)>& before,
                             const std::function<void(int, std::size_t)>& after = {}) {
    std::unique_ptr<Error> ended;
    RunRanks(1, 1, kLiveDeadline, [&](ProgressLoop& loop) {
      ThreadPool pool(1);
      std::deque<AnnouncedGradient> gradients;
      try {
        LiveEngine engine(Configure(which_, kEmulated, 1), loop, pool);
        for (int step = 0; step < 3; ++step) {
          if (before) before(engine, step);
          engine.BeginStep(static_cast<std::uint64_t>(step), step == 0);
          engine.BeginForward();
          engine.EndForward();
          engine.EndMicroStep();
          for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
            gradients.emplace_back(engine, gradient(step, t));
            engine.AnnounceGradient(t, gradients.back().get());
            if (after) after(step, t);
          }
          engine.EndBackward();
          engine.FinishStep();
          engine.BeginUpdate();
          engine.EndStep();
        }
      } catch (const Error& error) {
        ended = std::make_unique<Error>(error);
        gpu::InjectFault("");
        gpu::SetEmulatedMemory(static_cast<std::size_t>(-1));
      }
    });
    return ended;
  }

  std::function<std::vector<float>(int, std::size_t)> gradient = [](int step, std::size_t tensor) {
    return IntegerGradient(0, step, tensor);
  };

 private:
  Case which_;
};

TEST(DeviceErrors, AnUndisturbedRankHasNone) { EXPECT_EQ(OneRank().Run({}), nullptr); }

class FaultOf : public ::testing::TestWithParam<std::tuple<const char*, int, int>> {};

// A fault in the middle of the second step, either transient or one that loses the context. The
// step ends with it, and the engine can be destroyed.
TEST_P(FaultOf, EndsTheStep) {
  const auto [call, nth, status] = GetParam();
  for (const Case& which : {kCases[0], kCases[2], kCases[3]}) {
    SCOPED_TRACE(which.name);
    const std::string fault =
        std::string(call) + ":" + std::to_string(nth) + ":" + std::to_string(status);
    const auto error = OneRank(which).Run({}, [&](int step, std::size_t tensor) {
      if (step == 1 && tensor == 2) gpu::InjectFault(fault);
    });
    ASSERT_NE(error, nullptr) << fault;
    EXPECT_EQ(error->kind(), FailureKind::kInternal) << error->what();
    const bool lost = std::string(error->what()).find("context is lost") != std::string::npos;
    EXPECT_EQ(lost, status == 719) << error->what();
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, FaultOf,
                         ::testing::Combine(::testing::Values("launch", "copy", "synchronize"),
                                            ::testing::Values(1, 3), ::testing::Values(1, 719)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) + "_" +
                                  std::to_string(std::get<1>(instance.param)) + "_" +
                                  std::to_string(std::get<2>(instance.param));
                         });

// One of two ranks has a fault before it needs the other; the other rank fails at its deadline.
TEST(DeviceErrors, OtherRanksAreNotLeftHanging) {
  constexpr std::chrono::milliseconds kDeadline{4000};
  std::atomic<int> ended = 0;
  std::atomic<int> faults = 0;
  RunRanks(2, 1, kDeadline, [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    std::deque<AnnouncedGradient> gradients;
    LiveConfig config = Configure(kCases[0], kEmulated, 2);
    config.deadline = 2 * kDeadline;
    LiveEngine engine(std::move(config), loop, pool);
    try {
      engine.BeginStep(0, false);
      engine.BeginForward();
      engine.EndForward();
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
        std::vector<float> gradient = IntegerGradient(loop.rank(), 0, t);
        if (loop.rank() == 1 && t == 0) gradient[0] = std::numeric_limits<float>::infinity();
        gradients.emplace_back(engine, std::move(gradient));
        engine.AnnounceGradient(t, gradients.back().get());
      }
      engine.EndBackward();
      engine.FinishStep();
    } catch (const Error& error) {
      ++ended;
      if (error.kind() == FailureKind::kNumeric) ++faults;
    }
  });
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(faults, 1);
}

TEST(DeviceErrors, WithoutRoomTheErrorNamesTheAllocation) {
  gpu::SetEmulatedMemory(gpu::EmulatedMemoryInUse() + 1000);
  const auto at_first = OneRank().Run({});
  ASSERT_NE(at_first, nullptr);
  EXPECT_EQ(at_first->kind(), FailureKind::kOutOfMemory);
  EXPECT_SAYS(at_first->what(), "the packed gradient");
  const std::size_t in_use = gpu::EmulatedMemoryInUse();
  const auto in_a_step = OneRank().Run({}, [](int step, std::size_t tensor) {
    if (step == 0 && tensor == 3) gpu::SetEmulatedMemory(gpu::EmulatedMemoryInUse() + 40000);
  });
  ASSERT_NE(in_a_step, nullptr);
  EXPECT_EQ(in_a_step->kind(), FailureKind::kOutOfMemory) << in_a_step->what();
  EXPECT_EQ(gpu::EmulatedMemoryInUse(), in_use);  // all memory is freed
}

TEST(DeviceErrors, ANaNIsRefusedByNameWhereverItIsFound) {
  for (const Case& which : {kCases[0], kCases[2], kCases[3]}) {
    SCOPED_TRACE(which.name);
    OneRank rank(which);
    rank.gradient = [](int step, std::size_t tensor) {
      auto values = IntegerGradient(0, step, tensor);
      if (step == 1 && tensor == 4) values[77] = std::numeric_limits<float>::quiet_NaN();
      return values;
    };
    const auto error = rank.Run({});
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->kind(), FailureKind::kNumeric) << error->what();
    EXPECT_SAYS(error->what(), "t9000");
  }
}

TEST(LiveEngine, RefusesAComputeStreamOfAnotherDevice) {
  RunRanks(1, 1, kLiveDeadline, [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    LiveConfig config = Configure(kCases[0], kEmulated, 1);
    config.compute = {Device{DeviceKind::kCuda, 0}, nullptr};
    EXPECT_THROW(LiveEngine(std::move(config), loop, pool), Error);
  });
}

// Two streams: the worker's, which the engine does not own, and one that runs its work at once.
TEST(LiveEngine, TakesTheComputeStreamOfTheWorker) {
  const auto expected = RunCase(kCases[0], {}, 1);
  const gpu::GpuStream own(kEmulated);
  for (const Stream& stream : {own.view(), Stream{kEmulated, nullptr}}) {
    const auto results =
        RunCase(kCases[0], kEmulated, 1, [&](LiveConfig& config) { config.compute = stream; });
    EXPECT_EQ(results[0].averaged, expected[0].averaged);
  }
}

}  // namespace
}  // namespace sparfuse::testing
