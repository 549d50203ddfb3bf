// Tests that windows of local steps on a device give the host's parameters, anchors and outer state
// bit for bit.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "baselines/composition.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "tests/support/devices/devices.hpp"
#include "tests/support/devices/fake_nccl.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/methods/windows.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

constexpr Device kDevice{DeviceKind::kEmulated, 0};

struct Case {
  const char* name;
  Options strategy;
  Options planner = {};
};

Options Clipped(Options steps, double outer_clip) {
  steps["outer_clip"] = outer_clip;
  return steps;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"average", WindowOptions{4, 0, "average"}},
      {"average_in_the_shadow", WindowOptions{2, 1, "average", .5}},
      {"sgd", WindowOptions{3, 0, "sgd", 0, .7}},
      {"sgd_of_one_step", WindowOptions{1, 0, "sgd"}},
      {"momentum", WindowOptions{4, 0, "momentum", 0, .7, .5}},
      {"nesterov", WindowOptions{4, 0, "nesterov", 0, .7, .9}},
      {"nesterov_ignored", WindowOptions{4, 0, "nesterov", 1, .7, .9}},
      {"streaming", WindowOptions{4, 1, "nesterov", .5, .4, .9}, {{"fragments", Whole(2)}}},
      {"streaming_in_stripes",
       WindowOptions{6, 2, "nesterov", .25, .4, .9},
       {{"fragments", Whole(2)}, {"stripes", Whole(2)}}},
      {"lagging", WindowOptions{3, 3, "momentum", 0, 1, .5}},
      {"clipped", Clipped(WindowOptions{4, 0, "momentum", 0, .7, .5}, 1)},
      {"clipped_in_fragments",
       Clipped(WindowOptions{4, 1, "momentum", .5, .7, .5}, .25),
       {{"fragments", Whole(2)}, {"stripes", Whole(2)}}},
      {"clipped_by_none", Clipped(WindowOptions{3, 3, "momentum", 0, 1, .5}, 1e6)},
      {"elastic", WindowOptions{2, 0, "elastic", 0, .25}},
      {"elastic_later", WindowOptions{3, 2, "elastic", 0, .25}}};
  return kCases;
}

// Tensors whose parts lie at all offsets from the 16 bytes that a kernel takes at once, one of more
// elements than a block.
Windows WindowsOf(const Case& which, int workers, Device device) {
  Windows windows;
  windows.workers = workers;
  windows.tensors = {5, 1, 640, 3, 9001, 8, 1, 130};
  windows.strategy = which.strategy;
  windows.planner = which.planner;
  windows.device = device;
  windows.steps = 13;
  windows.inner = [] { return Sgd(.1f, .9f); };
  windows.gradient = NoisyGradient;
  windows.start = [](int) {
    Floats w(9789);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 37) / 19 - 1;
    return w;
  };
  return windows;
}

// Equal in all that is no time.
void ExpectEqual(const std::vector<WindowHistory>& a, const std::vector<WindowHistory>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].parameters, b[r].parameters) << r;
    EXPECT_EQ(a[r].anchors, b[r].anchors) << r;
    EXPECT_EQ(a[r].outer, b[r].outer) << r;
    EXPECT_EQ(a[r].finished, b[r].finished) << r;
    EXPECT_EQ(a[r].finished_anchor, b[r].finished_anchor) << r;
    EXPECT_EQ(a[r].memory, b[r].memory) << r;
    EXPECT_EQ(a[r].mass_checks, b[r].mass_checks) << r;
    EXPECT_EQ(b[r].mass_violations, 0u) << r;
    for (std::size_t t = 0; t < a[r].records.size(); ++t) {
      EXPECT_EQ(a[r].records[t].exchanges, b[r].records[t].exchanges) << t;
      EXPECT_EQ(a[r].records[t].sent_bytes, b[r].records[t].sent_bytes) << t;
      EXPECT_EQ(a[r].records[t].messages_sent, b[r].records[t].messages_sent) << t;
      EXPECT_EQ(b[r].records[t].outer_seconds > 0,
                b[r].records[t].exchanges > 0 || a[r].records[t].outer_seconds > 0)
          << t;
    }
  }
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
  const auto expected = Train(WindowsOf(which, workers, {}));
  ExpectEqual(expected, Train(WindowsOf(which, workers, {kind, 0})));
  EXPECT_NE(expected[0].anchors.back(), WindowsOf(which, workers, {}).start(0));
}

INSTANTIATE_TEST_SUITE_P(All, EveryCase,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::ValuesIn(kSanitized ? std::vector{2}
                                                                           : std::vector{1, 2, 3}),
                                            TheDevices()),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::to_string(std::get<1>(instance.param)) +
                                  (std::get<2>(instance.param) == DeviceKind::kCuda ? "_cuda" : "");
                         });

// Selections of differences, with a residual that decays, of which a small tensor is sent dense.
Windows Selecting(int delay, int fragments, Device device, const Options& sending = {},
                  const Options& rules = {}, int workers = 2) {
  Windows windows = WindowsOf({"", {}}, workers, device);
  windows.verify = true;
  windows.configure = [sizes = windows.tensors, delay, fragments, sending, rules, workers] {
    MethodParts parts;
    parts.strategy = "sparse-local-steps";
    parts.strategy_options = WindowOptions{4, delay, "nesterov", 0, .7, .9};
    for (const auto& [key, value] : rules) parts.strategy_options[key] = value;
    parts.planner = "fragments";
    parts.planner_options = {{"fragments", Whole(fragments)}};
    parts.sparsifier = &FindSparsifier("chunked-topk");
    parts.sparsifier_options =
        ResolveOptions("chunked-topk", parts.sparsifier->options, {{"chunk", Whole(512)}});
    parts.sending = sending;
    parts.density = .05;
    parts.feedback = "residual";
    parts.feedback_options = {{"decay", .95}};
    parts.collective = "sparse-allgather";
    const Composition made = Compose(parts);
    std::vector<TensorShape> shapes;
    for (const std::size_t n : sizes) {
      shapes.push_back({"t" + std::to_string(shapes.size()), {static_cast<std::int64_t>(n)}, n});
    }
    GradientLayout layout =
        MakeLayout(shapes, {.dense = {"t5"}, .without_feedback = {}}, "the test");
    Plan plan = MakePlan(made, layout, {workers, 1}, nullptr, nullptr);
    return MakeLiveConfig(made, std::move(layout), std::move(plan), {workers, 1}, 7);
  };
  return windows;
}

TEST(SelectedLocalSteps, DoOnADeviceWhatTheyDoOnTheHost) {
  for (const auto& [delay, fragments] : {std::pair{0, 1}, {1, 2}, {3, 1}, {4, 1}}) {
    SCOPED_TRACE(std::to_string(delay) + ", " + std::to_string(fragments));
    const auto expected = Train(Selecting(delay, fragments, {}));
    EXPECT_GT(expected[0].mass_checks, 0u);
    ExpectEqual(expected, Train(Selecting(delay, fragments, kDevice)));
  }
}

// Sums over the senders of an element, values scaled to the median norm, and both; of more payloads
// than a launch takes, too.
TEST(SelectedLocalSteps, FollowRulesOfSendersOnADeviceAsOnTheHost) {
  const Options senders = {{"combine", std::string("senders")}};
  const Options median = {{"clip", std::string("median")}};
  const Options both = {{"combine", std::string("senders")}, {"clip", std::string("median")}};
  const Options clipped = {
      {"clip", std::string("median")}, {"outer", std::string("momentum")}, {"outer_clip", .5}};
  std::vector<std::pair<Options, int>> rules;
  for (const Options& each : {senders, median, both, clipped}) rules.emplace_back(each, 3);
  if (!kSanitized) rules.emplace_back(both, 34);
  for (const auto& [rule, workers] : rules) {
    for (const auto& [delay, fragments] : {std::pair{0, 1}, {1, 2}}) {
      if (workers > 3 && delay > 0) continue;
      SCOPED_TRACE(ToString(rule.begin()->second) + std::to_string(workers));
      const auto train = [&](Device device, const Options& with) {
        Windows windows = Selecting(delay, fragments, device, {}, with, workers);
        windows.gradient = [of = windows.gradient](int rank, const Floats& w, int t) {
          Floats gradient = of(rank, w, t);  // one rank has much larger differences
          for (float& each : gradient) each *= rank == 0 ? 8 : 1;
          return gradient;
        };
        if (workers > 3) windows.steps = 4;
        return Train(windows);
      };
      const auto expected = train({}, rule);
      ExpectEqual(expected, train(kDevice, rule));
      EXPECT_NE(expected[0].anchors.back(), train({}, {})[0].anchors.back());
    }
  }
}

// SparseLoCo's two bits, and other values by chunks: the residual takes the errors of levels.
TEST(SelectedLocalSteps, AreCodedOnADeviceAsOnTheHost) {
  const Options chunks = {{"payload_indices", std::string("u12")}};
  const auto with = [&](const char* values, const char* scope = "tensor") {
    Options options = chunks;
    options["payload_values"] = std::string(values);
    options["scope"] = std::string(scope);
    return options;
  };
  const Options quantized = [&] {
    Options options = with("codes4");
    options["payload_dense"] = std::string("fp16");
    return options;
  }();
  for (const Options& sending :
       {with("f32"), with("f16"), with("codes4"), with("codes4", "chunk"), quantized}) {
    for (const auto& [delay, fragments] : {std::pair{0, 1}, {1, 2}, {4, 1}}) {
      SCOPED_TRACE(ToString(sending.at("payload_values")) + ", " + std::to_string(delay));
      const auto expected = Train(Selecting(delay, fragments, {}, sending));
      EXPECT_GT(expected[0].mass_checks, 0u);
      ExpectEqual(expected, Train(Selecting(delay, fragments, kDevice, sending)));
    }
  }
}

// The anchor is evaluated where the parameters lie, and both return.
TEST(LocalStepsOnADevice, SwapAnchorAndParameters) {
  Windows windows = WindowsOf(Cases()[6], 2, kDevice);  // parameters ignore the anchor
  windows.steps = 6;
  const auto plain = Train(windows);
  std::vector<Floats> swapped(2);
  windows.before = [&](LiveEngine& engine, int t) {
    if (t != 6) return;
    engine.SwapAnchor();
    const auto parameters = engine.Anchor({0, engine.layout().numel()});
    swapped[static_cast<std::size_t>(engine.rank())].assign(parameters.begin(), parameters.end());
    engine.SwapAnchor();
  };
  ExpectEqual(plain, Train(windows));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(swapped[rank], plain[rank].parameters[4]);
    EXPECT_NE(swapped[rank], plain[rank].anchors[4]);
  }
}

TEST(LocalStepsOnADevice, NameWhatIsNotFinite) {
  for (const int delay : {0, 1}) {
    Windows windows = WindowsOf({"", WindowOptions{2, delay, "sgd"}}, 1, kDevice);
    windows.gradient = [of = windows.gradient](int rank, const Floats& w, int t) {
      Floats gradient = of(rank, w, t);
      if (t == 3) gradient[649] = std::numeric_limits<float>::quiet_NaN();  // in tensor 4
      return gradient;
    };
    ExpectError(FailureKind::kNumeric, {"the change by local steps of t4", "in window 1"},
                [&] { Train(windows); });
  }
}

// Messages of a communicator that sends from the device, and those of exchanges beside steps, which
// go over the host.
TEST(LocalStepsOverNccl, DoWhatTheyDoOnTheHost) {
  for (const std::size_t which : {0u, 5u, 7u, 9u, 10u}) {
    const Case& tested = Cases()[which];
    SCOPED_TRACE(tested.name);
    const auto expected = Train(WindowsOf(tested, 2, {}));
    FakeNccl nccl;
    Windows windows = WindowsOf(tested, 2, kDevice);
    windows.configure = [of = windows] {
      Windows plain = of;
      LiveConfig config = plain.Configure();
      if (config.local_steps->delay == 0) {
        config.dense_collective = CoreCollective("native-allreduce");
      }
      return config;
    };
    windows.wrap = [](std::unique_ptr<Communicator> host) {
      return MakeNcclWorld(FakeNccl::Api(), EmulatedSetup(std::move(host)));
    };
    const auto got = Train(windows);
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].parameters, expected[r].parameters);
      EXPECT_EQ(got[r].anchors, expected[r].anchors);
      EXPECT_EQ(got[r].finished, expected[r].finished);
    }
    EXPECT_EQ(nccl.violations(), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace sparfuse::testing
