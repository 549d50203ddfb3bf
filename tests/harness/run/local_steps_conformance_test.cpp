// Checks the laws of every registered method that synchronises once in a window, live and modelled,
// over ranks that are threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/methods/configured_method.hpp"
#include "tests/support/methods/counted_steps.hpp"
#include "tests/support/methods/windows.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::Floats;
using testing::kTensorSizes;
using testing::NoisyGradient;
using testing::WindowHistory;
using testing::Windows;

constexpr int kEvery = 8;

std::vector<Method> MethodsOfWindows() {
  std::vector<Method> methods;
  for (const Method& method : BuiltInCatalog().methods) {
    if (FindStrategy(method.strategy).local_steps != nullptr) methods.push_back(method);
  }
  return methods;
}

CellConfig ConfigOfWindows(const Method& method, json options = json::object()) {
  options["every"] = kEvery;
  return ConfigOf(method, "", options);
}

Floats Parameters() {
  Floats w;
  for (const std::size_t n : kTensorSizes) {
    for (std::size_t i = 0; i < n; ++i) {
      w.push_back(static_cast<float>(w.size() % 31) / 16 - 1);
    }
  }
  return w;
}

Windows WindowsOf(const CellConfig& config, const Topology& where, int steps) {
  Windows windows;
  windows.workers = where.ranks;
  windows.steps = steps;
  windows.verify = true;
  windows.start = [](int) { return Parameters(); };
  windows.gradient = NoisyGradient;
  windows.configure = [config, where] {
    const Composition composition = Compose(config);
    GradientLayout layout = MakeLayout(Tensors(), config);
    Plan plan = MakePlan(composition, layout, where, nullptr, nullptr);
    return MakeLiveConfig(composition, std::move(layout), std::move(plan), where, 7);
  };
  return windows;
}

ModelConfig ModelOf(const CellConfig& config, const Topology& where) {
  return MakeModelConfig(Compose(config), MakeLayout(Tensors(), config), where,
                         testing::EvenBackward(kTensorSizes.size()), testing::EvenCost(), 7);
}

class EveryMethodOfWindows : public ::testing::TestWithParam<std::tuple<Method, Topology>> {
 protected:
  CellConfig Config(const json& options = json::object()) const {
    return ConfigOfWindows(std::get<0>(GetParam()), options);
  }
  Topology Where() const { return std::get<1>(GetParam()); }
  LocalSteps Steps() const { return *Compose(Config()).local_steps(); }
};

void ExpectEqual(const std::vector<WindowHistory>& a, const std::vector<WindowHistory>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].parameters, b[r].parameters) << r;
    EXPECT_EQ(a[r].anchors, b[r].anchors) << r;
    EXPECT_EQ(a[r].outer, b[r].outer) << r;
    EXPECT_EQ(a[r].finished, b[r].finished) << r;
  }
}

TEST_P(EveryMethodOfWindows, SharesAnchorsAndLosesNothing) {
  const Windows windows = WindowsOf(Config(), Where(), 2 * kEvery + 3);
  const auto ranks = Train(windows);
  for (const WindowHistory& rank : ranks) {
    EXPECT_EQ(rank.anchors, ranks[0].anchors);
    EXPECT_EQ(rank.outer, ranks[0].outer);
    EXPECT_EQ(rank.finished_anchor, ranks[0].finished_anchor);
    EXPECT_EQ(rank.mass_violations, 0u);
    EXPECT_EQ(rank.mass_checks > 0, std::get<0>(GetParam()).sends_payloads());
    EXPECT_NE(rank.anchors.back(), Parameters());
  }
  // Only the steps of a date send, and all dates are in the first window.
  std::uint64_t dates = 0;
  for (int t = 1; t <= kEvery; ++t) {
    const StepRecord& record = ranks[0].records[static_cast<std::size_t>(t - 1)];
    dates += record.exchanges > 0;
    if (record.exchanges == 0) {
      EXPECT_EQ(record.messages_sent, 0u) << t;
    }
  }
  EXPECT_EQ(dates, static_cast<std::uint64_t>(
                       std::ranges::max(windows.configure().plan.units, {}, &Unit::date).date + 1));
  // Without a mix, the parameters equal the anchor once everything is received.
  if (Steps().mix == 0 && Steps().delay == 0 && dates == 1 &&
      Steps().outer != OuterRule::kElastic) {
    for (const WindowHistory& rank : ranks) {
      EXPECT_EQ(rank.parameters[kEvery - 1], ranks[0].anchors[kEvery - 1]);
    }
  }
  ExpectEqual(ranks, Train(windows));
}

TEST_P(EveryMethodOfWindows, IsModelledWithTheBytesThatItSends) {
  const auto live = Train(WindowsOf(Config(), Where(), 2 * kEvery));
  const ModelConfig model = ModelOf(Config(), Where());
  EXPECT_EQ(MethodMemoryBytes(model), live[0].memory);
  for (const int traced : {0, Where().ranks}) {
    const auto steps = SimulateSteps(model, 0, 2 * kEvery, traced);
    testing::ExpectSameCounts(steps, live);
  }
}

TEST_P(EveryMethodOfWindows, NamesATensorThatIsNotFinite) {
  Windows windows = WindowsOf(Config(), Topology{1, 1}, kEvery);
  windows.gradient = [of = windows.gradient](int rank, const Floats& w, int t) {
    Floats gradient = of(rank, w, t);
    if (t == 1) gradient[700] = std::numeric_limits<float>::quiet_NaN();  // in tensor 3
    return gradient;
  };
  if (Where().ranks == 1) {
    testing::ExpectError(FailureKind::kNumeric, {"tensor3", "step", "in window 0"},
                         [&] { Train(windows); });
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Method, Topology>>& info) {
  const Topology& where = std::get<1>(info.param);
  std::string name = std::get<0>(info.param).name + "_" + std::to_string(where.ranks);
  if (where.ranks_per_node > 1) name += "_" + std::to_string(where.ranks_per_node) + "_a_node";
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethodOfWindows,
                         ::testing::Combine(::testing::ValuesIn(MethodsOfWindows()),
                                            ::testing::Values(Topology{1, 1}, Topology{2, 1},
                                                              Topology{3, 1}, Topology{4, 2})),
                         NameOf);

// --- the coding of chunks

Method Named(const std::string& name) {
  for (const Method& method : MethodsOfWindows()) {
    if (method.name == name) return method;
  }
  throw std::runtime_error("no method " + name);
}

// 5 % are sent of 13,943 elements, in tensors of 10 to 9,000 elements and chunks of 4,096.
TEST(ChunksOfSelections, AreOfTheSpecifiedBytesLiveAndModelled) {
  const Method method = Named("sparseloco");
  for (const auto& [values, scope] : std::vector<std::pair<std::string, std::string>>{
           {"codes4", "tensor"}, {"codes4", "chunk"}, {"f16", "tensor"}, {"f32", "tensor"}}) {
    SCOPED_TRACE(values + " " + scope);
    const CellConfig config =
        ConfigOfWindows(method, {{"payload_values", values}, {"scope", scope}});
    std::uint64_t expected = 0;
    for (const std::size_t n : kTensorSizes) {
      std::uint64_t k = 0;
      for (std::size_t begin = 0; begin < n; begin += 4096) {
        k += KeptCount(std::min<std::size_t>(4096, n - begin), 0.05);
      }
      const std::uint64_t bits = values == "codes4" ? 2 : values == "f16" ? 16 : 32;
      const std::uint64_t groups = scope == "chunk" ? (n + 4095) / 4096 : 1;
      const std::uint64_t levels = values == "codes4" ? 16 * groups : 0;
      expected += ((12 * k + 7) / 8 + (bits * k + 7) / 8 + levels + 3) / 4 * 4;
    }
    const auto ranks = Train(WindowsOf(config, {2, 1}, kEvery));
    for (const WindowHistory& rank : ranks) {
      EXPECT_EQ(rank.records.back().payload_bytes, expected);
      EXPECT_EQ(rank.mass_violations, 0u);
    }
    const auto modelled = SimulateSteps(ModelOf(config, {2, 1}), 0, kEvery, 0);
    EXPECT_EQ(modelled.back().records[0].payload_bytes, expected);
  }
}

// Selections that fuse tensors first, shards of nodes, and counts that are unknown beforehand.
TEST(ChunksOfSelections, AreOfAllMethodsWhosePayloadsAreNotAddedOnTheWay) {
  for (const char* scope : {"tensor", "chunk"})
    for (const char* name : {"wfbp", "safusion", "hitopkcomm", "deepreduce"}) {
      for (const char* sparsifier : {"chunked-topk", "topk", "threshold"}) {
        SCOPED_TRACE(std::string(name) + " " + sparsifier + " " + scope);
        const json codes = {
            {"payload_values", "codes4"}, {"payload_indices", "u12"}, {"scope", scope}};
        const CellConfig config = ConfigOf(MethodOf(name), sparsifier, codes);
        const auto results = RunLive(config, Topology{4, 2}, testing::IntegerGradient);
        for (const testing::RankResult& rank : results) {
          EXPECT_EQ(rank.averaged, results[0].averaged);
          EXPECT_EQ(rank.mass_violations, 0u);
          EXPECT_GT(rank.mass_checks, 0u);
        }
      }
    }
}

// Options of the rules change times, not bytes: what they read once more is modelled.
TEST(OptionsOfWindows, AreModelledWithTheBytesThatTheySend) {
  struct Tried {
    const char* method;
    json with, without;
  };
  const json late = {{"outer", "momentum"}, {"outer_momentum", .5}, {"delay", kEvery}};
  json clipped = late;
  clipped["outer_clip"] = .5;
  clipped["penalty"] = 2;
  for (const Tried& tried :
       {Tried{"sparseloco", {{"combine", "senders"}}, json::object()},
        Tried{"sparseloco", {{"combine", "senders"}, {"clip", "median"}}, json::object()},
        Tried{"local-sgd", clipped, late}}) {
    SCOPED_TRACE(tried.with.dump());
    const Topology where{3, 1};
    const auto steps_of = [&](const json& options) {
      const CellConfig config = ConfigOfWindows(Named(tried.method), options);
      ModelConfig model = ModelOf(config, where);
      model.cost.scale_seconds = PiecewiseLinear({{0, 0}, {1e6, 1e-3}});
      model.cost.clear_seconds = model.cost.scale_seconds;
      return std::pair{Train(WindowsOf(config, where, 2 * kEvery)),
                       SimulateSteps(model, 0, 2 * kEvery, where.ranks)};
    };
    const auto [live, modelled] = steps_of(tried.with);
    const auto [plain, modelled_plain] = steps_of(tried.without);
    testing::ExpectSameCounts(modelled, live);
    EXPECT_NE(live[0].anchors.back(), plain[0].anchors.back());
    for (const WindowHistory& rank : live) {
      EXPECT_EQ(rank.anchors, live[0].anchors);
      EXPECT_EQ(rank.outer, live[0].outer);
    }
    EXPECT_EQ(live[0].records.back().sent_bytes, plain[0].records.back().sent_bytes);
    EXPECT_GT(modelled.back().records[0].outer_seconds,
              modelled_plain.back().records[0].outer_seconds);
  }
}

// The state of the inner optimizer is adam's: two arrays as long as the parameters.
TEST(InnerStateOfMethods, IsModelledWithTheBytesThatItSends) {
  for (const char* name : {"local-sgd", "streaming-diloco", "sparseloco"}) {
    for (const Topology& where : {Topology{1, 1}, Topology{3, 1}, Topology{4, 2}}) {
      std::vector<std::uint64_t> sent;
      std::vector<double> outer, exposed;
      for (const char* inner : {"keep", "reset", "average"}) {
        SCOPED_TRACE(name + std::to_string(where.ranks) + inner);
        CellConfig config = ConfigOfWindows(Named(name), {{"inner_state", inner}});
        config.recipe = {{"optimizer", std::string("adam")}, {"momentum", .9}};
        Windows windows = WindowsOf(config, where, 2 * kEvery);
        windows.arrays = 2;
        windows.with_state = [](Floats& w, std::vector<Floats>& state, const Floats& g, int,
                                const std::vector<int>&) {
          for (std::size_t i = 0; i < w.size(); ++i) {
            state[0][i] += g[i];
            state[1][i] += g[i] * g[i];
            w[i] -= .01f * state[0][i];
          }
        };
        const auto live = Train(windows);
        ModelConfig model = ModelOf(config, where);
        model.cost.scale_seconds = PiecewiseLinear({{0, 0}, {1e6, 1e-3}});
        EXPECT_EQ(MethodMemoryBytes(model), live[0].memory);
        const auto modelled = SimulateSteps(model, 0, 2 * kEvery, where.ranks);
        testing::ExpectSameCounts(modelled, live);
        double seconds = 0, waited = 0;
        for (const ModelStep& step : modelled) {
          seconds += step.records[0].outer_seconds;
          waited += step.records[0].exposed_communication_seconds;
        }
        outer.push_back(seconds);
        exposed.push_back(waited);
        sent.push_back(0);
        for (const StepRecord& record : live[0].records) sent.back() += record.payload_bytes;
        for (const WindowHistory& rank : live) EXPECT_EQ(rank.anchors, live[0].anchors);
      }
      std::size_t elements = 0;
      for (const std::size_t n : kTensorSizes) elements += n;
      EXPECT_EQ(sent[1], sent[0]);
      EXPECT_EQ(sent[2], sent[0] + 2 * 2 * sizeof(float) * elements);  // two windows, two arrays
      EXPECT_GT(outer[1], outer[0]);
      EXPECT_GT(outer[2], outer[1]);
      if (where.ranks > 1) {
        EXPECT_GT(exposed[2], exposed[0]);
      }
    }
  }
}

TEST(InnerStateOfMethods, IsNotModelledWithoutKnowingWhatTheOptimizerKeeps) {
  const CellConfig config = ConfigOfWindows(Named("local-sgd"), {{"inner_state", "average"}});
  testing::ExpectError(FailureKind::kConfig, {"inner_state", "expected \"keep\""}, [&] {
    ModelOf(config, {2, 1});
  });
}

TEST(IdleTriggerOfMethods, LeavesAnchorsEqualAndLosesNothing) {
  for (const char* name : {"local-sgd", "diloco", "streaming-diloco", "shadowsync", "sparseloco"}) {
    for (const Topology& where : {Topology{2, 1}, Topology{4, 2}}) {
      SCOPED_TRACE(name + std::to_string(where.ranks));
      const CellConfig config = ConfigOfWindows(Named(name), {{"trigger", "idle"}, {"delay", 1}});
      const auto ranks = Train(WindowsOf(config, where, 40));
      std::uint64_t received = 0;
      for (const StepRecord& record : ranks[0].records) received += record.exchanges;
      EXPECT_GT(received + ranks[0].finish.exchanges, 0u);
      for (const WindowHistory& rank : ranks) {
        EXPECT_EQ(rank.anchors, ranks[0].anchors);
        EXPECT_EQ(rank.outer, ranks[0].outer);
        EXPECT_EQ(rank.finished_anchor, ranks[0].finished_anchor);
        EXPECT_NE(rank.finished_anchor, Parameters());
        EXPECT_EQ(rank.mass_violations, 0u);
      }
    }
  }
}

TEST(IdleTriggerOfMethods, IsModelledOverAllStepsOfWhichSomeReceive) {
  CellConfig config = ConfigOfWindows(Named("shadowsync"), {{"trigger", "idle"}});
  config.steps = 3 * kEvery;
  ModelConfig model = ModelOf(config, {2, 1});
  model.backward = testing::EvenBackward(model.layout.tensors());
  model.cost = DeclaredCost(1, 1e-4);
  for (const bool all : {false, true}) {
    const auto steps = SimulateCell(config, model, all, 0);
    ASSERT_EQ(steps.size(), 3u * kEvery);
    std::uint64_t exchanges = 0;
    for (const ModelStep& step : steps) exchanges += step.records[0].exchanges;
    // An exchange is over within a step, and received a step later.
    EXPECT_EQ(exchanges, 3u * kEvery / 2);
  }
  model.cost = DeclaredCost(1e-6, 1e-4);
  testing::ExpectError(FailureKind::kConfig, {"trigger = \"idle\"", "longer than the 24 modelled"},
                       [&] { SimulateCell(config, model, true, 0); });
}

TEST(ChunksOfSelections, AreRefusedWhereTheyHaveNoMeaning) {
  const auto why = [](const char* method, const json& options,
                      const char* sparsifier = "chunked-topk") {
    return testing::ErrorOf([&] { Compose(ConfigOf(MethodOf(method), sparsifier, options)); });
  };
  EXPECT_SAYS(why("wfbp", {{"payload_values", "codes4"}}), "expected \"u12\"");
  EXPECT_SAYS(why("wfbp", {{"payload_values", "codes4"}, {"payload_indices", "bloom"}}),
              "expected \"u12\"");
  EXPECT_SAYS(why("wfbp", {{"payload_values", "fitted"}, {"payload_indices", "u12"}}),
              "expected \"u32\" or \"bloom\"");
  EXPECT_SAYS(why("oktopk", {{"payload_indices", "u12"}}, "topk"), "adds payloads on the way");
  EXPECT_SAYS(why("hipress", {{"payload_indices", "u12"}}), "takes payloads apart");
  EXPECT_SAYS(why("wfbp", {{"payload_indices", "u12"}, {"scope", "chunk"}}), "has no levels");
  CellConfig config = ConfigOf(MethodOf("wfbp"), "chunked-topk", {{"payload_indices", "u12"}});
  config.sparsifier_options = {{"chunk", std::int64_t{8192}}};
  EXPECT_SAYS(testing::ErrorOf([&] { Compose(config); }), "chunk = 8192");
}

}  // namespace
}  // namespace sparfuse::harness
