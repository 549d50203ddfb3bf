// What every registered method must do, live and modelled, over ranks that are threads.
#include <gtest/gtest.h>

#include <limits>

#include "core/engine/model_engine.hpp"
#include "harness/catalog.hpp"
#include "harness/composition.hpp"
#include "tests/live_run.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;
using testing::IntegerGradient;
using testing::kTensorSizes;
using testing::RankResult;

std::vector<TensorShape> Tensors() {
  std::vector<TensorShape> tensors;
  for (const std::size_t n : kTensorSizes) {
    tensors.push_back(
        {"tensor" + std::to_string(tensors.size()), {static_cast<std::int64_t>(n)}, n});
  }
  return tensors;
}

json ConfigOf(const Method& method, const std::string& sparsifier = "") {
  static const Catalog kCatalog = BuiltInCatalog();
  json options = json::object();
  if (method.name == "safusion-naive") options["buffer_fraction"] = 0.125;
  if (method.name == "safusion-inter") options["units"] = 3;
  return {{"method_options", ResolveMethodOptions(kCatalog, method, options)},
          {"sparsifier", method.dense()       ? "none"
                         : sparsifier.empty() ? method.sparsifier
                                              : sparsifier},
          {"sparsifier_options", json::object()},
          {"density", method.dense() ? 1.0 : 0.05},
          {"feedback", method.dense() ? "none" : "residual"},
          {"workload", "none"},
          {"dense_tensors", {{"max_ndim", 0}, {"names", json::array()}}}};
}

std::vector<RankResult> RunLive(const json& config, int workers,
                                const testing::Gradients& gradient_of,
                                std::size_t without_gradient = 999) {
  const auto configure = [&] {
    const Composition composition = Compose(config);
    LiveConfig live;
    live.layout = MakeLayout(Tensors(), config);
    live.topology = {workers, 1};
    live.plan = MakePlan(composition, live.layout, live.topology, nullptr, nullptr);
    live.strategy = composition.MakeStrategy();
    if (composition.sparsifier != nullptr) {
      live.sparsifier = composition.sparsifier->make(
          ResolveOptions("test", composition.sparsifier->options, {}), 7);
      live.unbounded_count = composition.sparsifier->unbounded_count;
    }
    live.error_feedback = composition.error_feedback;
    live.dense_collective = composition.dense_collective;
    live.sparse_collective = composition.sparse_collective;
    live.deadline = testing::kLiveDeadline;
    return live;
  };
  return testing::RunLive(configure, workers, gradient_of, without_gradient);
}

class EveryMethod : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  Method Which() const {
    for (const Method& method : BuiltInCatalog().methods) {
      if (method.name == std::get<0>(GetParam())) return method;
    }
    throw std::runtime_error("no such method");
  }
  int Workers() const { return std::get<1>(GetParam()); }
};

TEST_P(EveryMethod, LosesNothingAndLeavesReplicasEqual) {
  const Method method = Which();
  const auto results = RunLive(ConfigOf(method), Workers(), IntegerGradient);
  EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
    if (!method.dense()) {
      EXPECT_GT(rank.mass_checks, 0u);
    }
  }
}

TEST_P(EveryMethod, IsDeterministic) {
  const json config = ConfigOf(Which());
  const auto first = RunLive(config, Workers(), IntegerGradient);
  const auto second = RunLive(config, Workers(), IntegerGradient);
  EXPECT_EQ(first.front().averaged, second.front().averaged);
  EXPECT_EQ(first.front().residual, second.front().residual);
}

TEST_P(EveryMethod, TreatsATensorWithoutGradientAsZeros) {
  const json config = ConfigOf(Which());
  const auto zeros = [](int rank, int step, std::size_t tensor) {
    return tensor == 4 ? std::vector<float>(kTensorSizes[4]) : IntegerGradient(rank, step, tensor);
  };
  const auto without = RunLive(config, Workers(), IntegerGradient, 4);
  const auto expected = RunLive(config, Workers(), zeros);
  EXPECT_EQ(without.front().averaged, expected.front().averaged);
}

TEST_P(EveryMethod, RefusesANaN) {
  const auto poisoned = [](int rank, int step, std::size_t tensor) {
    auto gradient = IntegerGradient(rank, step, tensor);
    if (step == 1 && tensor == 2) gradient[5] = std::numeric_limits<float>::quiet_NaN();
    return gradient;
  };
  try {
    RunLive(ConfigOf(Which()), Workers(), poisoned);
    FAIL() << "a NaN was sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kNumeric);
    const std::string what = error.what();
    // A fused buffer may only know where it begins.
    EXPECT_TRUE(what.find("tensor2") != std::string::npos ||
                what.find("tensor0") != std::string::npos)
        << what;
  }
}

// The two engines run the same strategy: for a sparsifier with exact counts they exchange the same
// units, of the same bytes, in as many messages.
TEST_P(EveryMethod, IsModelledWithTheBytesThatItSends) {
  const Method method = Which();
  const json config = ConfigOf(method);
  const auto live = RunLive(config, Workers(), IntegerGradient);
  const Composition composition = Compose(config);
  ModelConfig model;
  model.layout = MakeLayout(Tensors(), config);
  model.topology = {Workers(), 1};
  model.plan = MakePlan(composition, model.layout, model.topology, nullptr, nullptr);
  model.make_strategy = [&] { return composition.MakeStrategy(); };
  model.sparsifier = "topk";
  model.dense_collective = composition.dense_collective;
  model.sparse_collective = composition.sparse_collective;
  model.cost.selection["topk"].Add(0.05, PiecewiseLinear({{0, 1e-6}, {1e6, 1e-3}}));
  model.cost.pack_seconds = PiecewiseLinear({{0, 1e-6}, {1e6, 1e-3}});
  model.cost.links.fill(LinkCost::FromAlphaBeta(1e-4, 8e-9));
  model.backward = {0, 0.01, std::vector<double>(kTensorSizes.size(), 0.001), 0.0005, 0.001};
  const ModelStep modelled = SimulateStep(model, 0, Workers());
  for (std::size_t r = 0; r < live.size(); ++r) {
    const StepRecord& expected = live[r].records.back();
    const StepRecord& record = modelled.records[r];
    EXPECT_EQ(record.payload_bytes, expected.payload_bytes);
    EXPECT_EQ(record.selected, expected.selected);
    if (method.name != "horovod-fusion") {  // how much fuses depends on when the cycle comes round
      EXPECT_EQ(record.exchanges, expected.exchanges);
      EXPECT_EQ(record.messages_sent, expected.messages_sent);
      EXPECT_EQ(record.sent_bytes, expected.sent_bytes);
      EXPECT_EQ(record.received_bytes, expected.received_bytes);
    }
    EXPECT_GE(record.step_seconds, 0.01 + 0.001 * static_cast<double>(kTensorSizes.size()));
    const double parts = record.forward_seconds + record.backward_seconds +
                         record.sparsify_seconds + record.exposed_communication_seconds +
                         record.decompress_seconds + record.update_seconds;
    EXPECT_NEAR(parts, record.step_seconds, 1e-9);  // the compute lane is always in one of them
  }
}

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const Method& method : BuiltInCatalog().methods) names.push_back(method.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethod,
                         ::testing::Combine(::testing::ValuesIn(MethodNames()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" +
                                              std::to_string(std::get<1>(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A threshold sparsifier gives the ranks different counts: buffers of the naive scheme would close
// at different tensors, and must not.
TEST(SafusionNaive, AgreesOnBuffersWhenCountsDiffer) {
  for (const Method& method : BuiltInCatalog().methods) {
    if (method.name != "safusion-naive") continue;
    const auto results = RunLive(ConfigOf(method, "dgc"), 3, IntegerGradient);
    EXPECT_EQ(results[0].averaged, results[1].averaged);
    EXPECT_EQ(results[0].averaged, results[2].averaged);
    EXPECT_GT(results[0].records.back().exchanges, 1u);
    EXPECT_GT(results[0].records.back().align_wait_seconds, 0.0);
  }
}

}  // namespace
}  // namespace sparfuse
