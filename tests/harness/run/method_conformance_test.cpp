// Checks what every registered method must do, live and modelled, over ranks that are threads, and
// live on the emulated device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "core/engine/model/model_engine.hpp"
#include "core/quantize/quantizer.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::harness {
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

const json kPlain = {{"payload_values", "f32"}, {"payload_indices", "u32"}};
const json kGaps = {{"payload_values", "f32"}, {"payload_indices", "delta"}};
const json kCoded = {{"payload_values", "f16"}, {"payload_indices", "delta"}};

CellConfig ConfigOf(const Method& method, const std::string& sparsifier = "",
                    json options = json::object()) {
  static const Catalog kCatalog = BuiltInCatalog();
  json given = method.conformance_options;
  given.update(options);
  CellConfig config;
  config.method_options = ResolveMethodOptions(kCatalog, method, given);
  if (!method.dense()) {
    config.sparsifier = sparsifier.empty() ? method.sparsifier : sparsifier;
    config.density = 0.05;
  }
  config.feedback = method.sends_payloads() ? "residual" : "none";
  return config;
}

CollectiveTraits TraitsOf(const CellConfig& config) {
  return Compose(config).sparse_collective->traits();
}

// A collective that adds payloads on the way takes them uncoded: coding is refused when a file is
// read.
bool RefusesCoding(const Method& method) {
  if (method.dense() || !TraitsOf(ConfigOf(method, "", kPlain)).sums) return false;
  EXPECT_THROW(Compose(ConfigOf(method, "", kGaps)), Error);
  EXPECT_THROW(Compose(ConfigOf(method, "", kCoded)), Error);
  return true;
}

// With dense_fallback, selecting from a large tensor takes longer than it saves.
CostModel CostOf(const CellConfig& config) {
  CostModel cost = testing::EvenCost();
  if (!BoolOption(config.method_options.sending, "dense_fallback")) return cost;
  for (auto& [name, seconds] : cost.selection) {
    seconds.Add(0.01, PiecewiseLinear({{0, 1e-6}, {4000, 1e-6}, {4001, 1}}));
  }
  return cost;
}

std::vector<RankResult> RunLive(const CellConfig& config, int workers,
                                const testing::Gradients& gradient_of,
                                std::size_t without_gradient = 999, Device device = {}) {
  const auto configure = [&] {
    const Composition composition = Compose(config);
    GradientLayout layout = MakeLayout(Tensors(), config);
    const Topology topology{workers, 1};
    const BackwardProfile backward = testing::EvenBackward(kTensorSizes.size());
    const CostModel cost = CostOf(config);
    Plan plan = MakePlan(composition, layout, topology, &backward, &cost);
    LiveConfig live = MakeLiveConfig(composition, std::move(layout), std::move(plan), topology, 7);
    live.deadline = testing::kLiveDeadline;
    live.device = device;
    return live;
  };
  return testing::RunLive(configure, workers, gradient_of, without_gradient);
}

// A method whose file codes its payloads, as any file may, has to pass as the registered ones do.
constexpr const char* kInHalves = "wfbp-in-halves";

Method MethodOf(const std::string& name) {
  if (name == kInHalves) {
    Method method = MethodOf("wfbp");
    method.sending["payload_values"] = std::string("f16");
    return method;
  }
  for (const Method& method : BuiltInCatalog().methods) {
    if (method.name == name) return method;
  }
  throw std::runtime_error("no such method");
}

class EveryMethod : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  Method Which() const { return MethodOf(std::get<0>(GetParam())); }
  int Workers() const { return std::get<1>(GetParam()); }
};

class EverySparseMethod : public EveryMethod {};

TEST_P(EveryMethod, LosesNothingAndLeavesReplicasEqual) {
  const Method method = Which();
  const CellConfig config = ConfigOf(method);
  const auto results = RunLive(config, Workers(), IntegerGradient);
  const auto quantizer = config.method_options.quantizer();
  // Signs times a scale are no integers, to which LostMass rounds in every step.
  const bool signs = quantizer && FindQuantizer(*quantizer).needs_feedback;
  const double tolerance = signs ? 0.5 * testing::kLiveSteps + 0.01 : 0;
  // Without feedback nothing keeps what rounding takes.
  const bool kept = TraitsOf(config).mass != Conservation::kLost;
  if (kept && (!quantizer || method.feedback != "none")) {
    for (const double lost : LostMass(results)) ASSERT_NEAR(lost, 0, tolerance);
  }
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
    if (method.sends_payloads()) {
      EXPECT_GT(rank.mass_checks, 0u);
    }
  }
}

TEST_P(EveryMethod, IsDeterministic) {
  const CellConfig config = ConfigOf(Which());
  const auto first = RunLive(config, Workers(), IntegerGradient);
  const auto second = RunLive(config, Workers(), IntegerGradient);
  EXPECT_EQ(first.front().averaged, second.front().averaged);
  EXPECT_EQ(first.front().residual, second.front().residual);
}

TEST_P(EveryMethod, TreatsATensorWithoutGradientAsZeros) {
  const CellConfig config = ConfigOf(Which());
  const auto zeros = [](int rank, int step, std::size_t tensor) {
    return tensor == 4 ? std::vector<float>(kTensorSizes[4]) : IntegerGradient(rank, step, tensor);
  };
  const auto without = RunLive(config, Workers(), IntegerGradient, 4);
  const auto expected = RunLive(config, Workers(), zeros);
  EXPECT_EQ(without.front().averaged, expected.front().averaged);
}

void ExpectNaNRefused(const CellConfig& config, int workers, Device device) {
  const auto poisoned = [](int rank, int step, std::size_t tensor) {
    auto gradient = IntegerGradient(rank, step, tensor);
    if (step == 1 && tensor == 2) gradient[5] = std::numeric_limits<float>::quiet_NaN();
    return gradient;
  };
  try {
    RunLive(config, workers, poisoned, 999, device);
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

TEST_P(EveryMethod, RefusesANaN) { ExpectNaNRefused(ConfigOf(Which()), Workers(), {}); }

ModelConfig Modelled(const CellConfig& config, const Composition& composition,
                     const std::vector<TensorShape>& tensors, int workers) {
  ModelConfig model;
  model.layout = MakeLayout(tensors, config);
  model.topology = {workers, 1};
  model.cost = CostOf(config);
  model.backward = testing::EvenBackward(tensors.size());
  model.plan = MakePlan(composition, model.layout, model.topology, &model.backward, &model.cost);
  model.make_strategy = [composition] { return composition.MakeStrategy(); };
  if (composition.sparsifier != nullptr) {
    model.sparsifier = composition.sparsifier->name;
    model.selector = composition.MakeSparsifier(0);
  }
  model.dense_quantizer = composition.MakeDenseQuantizer(0);
  model.dense_collective = composition.dense_collective;
  model.sparse_collective = composition.sparse_collective;
  model.coding = composition.coding;
  return model;
}

// Ranks that follow rank 0 have the times and the counts that they have when they are simulated.
void ExpectFollowersAsSimulated(const ModelConfig& model) {
  const int ranks = model.topology.ranks;
  const ModelStep all = SimulateStep(model, 3, ranks);
  const ModelStep first = SimulateStep(model, 3, 0);
  ASSERT_EQ(first.records.size(), all.records.size());
  for (std::size_t r = 0; r < all.records.size(); ++r) {
    EXPECT_EQ(first.records[r].step_seconds, all.records[r].step_seconds) << r;
    EXPECT_EQ(first.records[r].exposed_communication_seconds,
              all.records[r].exposed_communication_seconds)
        << r;
    EXPECT_EQ(first.records[r].payload_bytes, all.records[r].payload_bytes) << r;
    EXPECT_EQ(first.records[r].selected, all.records[r].selected) << r;
    EXPECT_EQ(first.records[r].summed, all.records[r].summed) << r;
    EXPECT_EQ(first.records[r].sent_bytes, all.records[r].sent_bytes) << r;
    EXPECT_EQ(first.records[r].received_bytes, all.records[r].received_bytes) << r;
    EXPECT_EQ(first.records[r].messages_sent, all.records[r].messages_sent) << r;
    EXPECT_EQ(first.records[r].exchanges, all.records[r].exchanges) << r;
    EXPECT_EQ(first.records[r].served, all.records[r].served) << r;
  }
}

void ExpectModelledAsLive(const Method& method, const CellConfig& config, int workers) {
  const auto live = RunLive(config, workers, IntegerGradient);
  const Composition composition = Compose(config);
  ModelConfig model = Modelled(config, composition, Tensors(), workers);
  const ModelStep modelled = SimulateStep(model, 0, workers);
  for (const double sigma : {0.0, 0.2}) {
    model.selection.sigma = sigma;
    ExpectFollowersAsSimulated(model);
  }
  // Sizes that depend on values are expected, not known.
  ExchangeSizes sizes{{1000, 10, 0}, std::vector<std::uint64_t>(4, 80), {}};
  composition.sparse_collective->Expect({}, {4, 1}, sizes);
  const bool known = sizes.seen.empty();
  for (std::size_t r = 0; r < live.size(); ++r) {
    const StepRecord& expected = live[r].records.back();
    const StepRecord& record = modelled.records[r];
    EXPECT_EQ(record.payload_bytes, expected.payload_bytes);
    EXPECT_EQ(record.selected, expected.selected);
    if (method.name != "horovod-fusion") {  // how much fuses depends on when the cycle comes round
      EXPECT_EQ(record.exchanges, expected.exchanges);
    }
    if (method.name != "horovod-fusion" && known) {
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

// The method's own, or one whose counts are known beforehand.
std::string ExactSparsifier(const Method& method) {
  return method.dense() || FindSparsifier(method.sparsifier).exact_count ? method.sparsifier
                                                                         : "topk";
}

// The two engines run the same strategy: for a sparsifier with exact counts they exchange the same
// units, of the same bytes, in as many messages.
TEST_P(EveryMethod, IsModelledWithTheBytesThatItSends) {
  ExpectModelledAsLive(Which(), ConfigOf(Which(), ExactSparsifier(Which())), Workers());
}

// The tensors are too small for gaps that would have to be escaped: these bytes are exact, too.
TEST_P(EverySparseMethod, IsModelledWithTheBytesOfItsCoding) {
  if (RefusesCoding(Which())) return;
  for (const json& coding :
       std::vector<json>{{{"payload_values", "f16"}}, {{"payload_indices", "delta"}}, kCoded}) {
    SCOPED_TRACE(coding.dump());
    ExpectModelledAsLive(Which(), ConfigOf(Which(), ExactSparsifier(Which()), coding), Workers());
  }
}

TEST_P(EverySparseMethod, SendsUnitsDenseAndLosesNothing) {
  const Method method = Which();
  const CellConfig config = ConfigOf(method, ExactSparsifier(method), {{"dense_fallback", true}});
  if (method.strategy == "safusion-naive" || method.sparsifier == "none") {
    EXPECT_THROW(Compose(config), Error);
    return;
  }
  const ModelConfig model = Modelled(config, Compose(config), Tensors(), Workers());
  const auto is_dense = [](const Unit& unit) { return unit.sparsified == Sparsified::kNever; };
  EXPECT_TRUE(std::ranges::any_of(model.plan.units, is_dense));
  const auto results = RunLive(config, Workers(), IntegerGradient);
  EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
  ExpectModelledAsLive(method, config, Workers());
}

// The first two of four steps are sent dense: they apply the average, and then everything is as if
// nothing had been before.
TEST_P(EverySparseMethod, BeginsWithDenseSteps) {
  constexpr int kDense = 2;
  const Method method = Which();
  const CellConfig config =
      ConfigOf(method, ExactSparsifier(method), {{"dense_warmup_steps", kDense}});
  if (!FindStrategy(method.strategy).dense_units) {
    EXPECT_THROW(Compose(config), Error);
    return;
  }
  const Composition composition = Compose(config);
  ASSERT_EQ(composition.dense_warmup_steps, 2u);
  const Topology topology{Workers(), 1};
  const GradientLayout layout = MakeLayout(Tensors(), config);
  const BackwardProfile backward = testing::EvenBackward(kTensorSizes.size());
  const CostModel cost = CostOf(config);
  const Plan sparse = MakePlan(composition, layout, topology, &backward, &cost);
  const auto run = [&](const Plan& first, int first_step) {
    const auto configure = [&] {
      LiveConfig live = MakeLiveConfig(composition, layout, first, topology, 7);
      live.deadline = testing::kLiveDeadline;
      return live;
    };
    const auto before_step = [&](LiveEngine& engine, int step) {
      if (first_step == 0 && step == kDense) engine.Replan(sparse);
    };
    return testing::RunLive(
        configure, Workers(), IntegerGradient, 999, before_step,
        [](std::unique_ptr<Communicator> world) { return world; }, first_step);
  };
  const auto results = run(DensePlan(sparse), 0);
  const auto fresh = run(sparse, kDense);
  for (int rank = 0; rank < Workers(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t step = 0; step < kDense; ++step) {
      EXPECT_EQ(results[r].records[step].exchanges, sparse.units.size());
      EXPECT_EQ(results[r].records[step].summed, 0u);
      for (std::size_t i = 0, t = 0; t < kTensorSizes.size(); i += kTensorSizes[t++]) {
        std::vector<float> sum(kTensorSizes[t]);
        for (int other = 0; other < Workers(); ++other) {
          const auto gradient = IntegerGradient(other, static_cast<int>(step), t);
          for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += gradient[e];
        }
        const float scale = 1.0f / static_cast<float>(Workers());
        for (std::size_t e = 0; e < sum.size(); ++e) {
          ASSERT_EQ(results[r].averaged[step][i + e], sum[e] * scale);
        }
      }
    }
    for (std::size_t step = kDense; step < testing::kLiveSteps; ++step) {
      EXPECT_EQ(results[r].averaged[step], fresh[r].averaged[step - kDense]);
      EXPECT_EQ(results[r].records[step].sent_bytes, fresh[r].records[step - kDense].sent_bytes);
    }
    EXPECT_EQ(results[r].mass_violations, 0u);
  }
  if (TraitsOf(config).mass != Conservation::kLost && method.feedback != "none" &&
      !config.method_options.quantizer()) {
    EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  }
}

// As if dense tensors did not lie apart: tensor after tensor.
void PutInOrder(const GradientLayout& layout, std::vector<float>& flat) {
  std::vector<float> ordered;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(layout.tensor(t).offset);
    ordered.insert(ordered.end(), begin,
                   begin + static_cast<std::ptrdiff_t>(layout.tensor(t).numel));
  }
  flat = std::move(ordered);
}

// Some tensors of every unit are never sparsified, also where units are fused first.
TEST_P(EverySparseMethod, CarriesDenseTensors) {
  const Method method = Which();
  CellConfig config = ConfigOf(method, ExactSparsifier(method));
  if (method.sparsifier == "none") GTEST_SKIP() << "sparsifies nothing";
  config.dense_tensors.names = {"tensor0", "tensor4", "tensor7"};
  auto results = RunLive(config, Workers(), IntegerGradient);
  const GradientLayout layout = MakeLayout(Tensors(), config);
  for (RankResult& rank : results) {
    PutInOrder(layout, rank.residual);
    for (auto& averaged : rank.averaged) PutInOrder(layout, averaged);
  }
  if (TraitsOf(config).mass != Conservation::kLost) {
    EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  }
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
  // What is dense has no residual: its average is that of the gradients.
  std::size_t offset = 0;
  for (std::size_t t = 0; t < kTensorSizes.size(); offset += kTensorSizes[t++]) {
    if (t != 0 && t != 4 && t != 7) continue;
    std::vector<double> sum(kTensorSizes[t]);
    for (int rank = 0; rank < Workers(); ++rank) {
      const auto gradient = IntegerGradient(rank, 2, t);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_FLOAT_EQ(results.front().averaged[2][offset + i],
                      static_cast<float>(sum[i] / Workers()));
    }
  }
  ExpectModelledAsLive(method, config, Workers());
}

// Integers of up to 99,700: halves round most of them and cut the largest off, but what they hold
// are integers again, so that sums stay exact.
std::vector<float> WideGradient(int rank, int step, std::size_t tensor) {
  auto gradient = IntegerGradient(rank, step, tensor);
  for (float& value : gradient) value *= 997;
  return gradient;
}

// As testing::LostMass, which knows integer gradients: these are 997 times as large.
std::vector<double> LostWideMass(const std::vector<RankResult>& results) {
  std::vector<double> lost = LostMass(results);
  for (int step = 0; step < testing::kLiveSteps; ++step) {
    for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
      std::size_t i = 0;
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
        for (const float value : IntegerGradient(rank, step, t)) lost[i++] -= 996.0 * value;
      }
    }
  }
  return lost;
}

std::uint64_t ReducedBytes(const CellConfig& config, int workers) {
  const ModelConfig model = Modelled(config, Compose(config), Tensors(), workers);
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < model.layout.tensors(); ++t) {
    if (model.plan.TensorOf(model.layout, t).reduced) {
      bytes += sizeof(float) * model.layout.tensor(t).numel;
    }
  }
  return bytes;
}

TEST_P(EverySparseMethod, FeedsBackWhatCodingTakes) {
  if (RefusesCoding(Which())) return;
  const auto plain = RunLive(ConfigOf(Which(), "", kPlain), Workers(), WideGradient);
  const auto coded = RunLive(ConfigOf(Which(), "", kCoded), Workers(), WideGradient);
  EXPECT_EQ(LostWideMass(coded), std::vector<double>(coded.front().residual.size(), 0.0));
  for (const RankResult& rank : coded) {
    EXPECT_EQ(rank.averaged, coded.front().averaged);
    EXPECT_GT(rank.mass_checks, 0u);
    EXPECT_EQ(rank.mass_violations, 0u);
    const StepRecord& record = rank.records.front();
    const StepRecord& expected = plain.front().records.front();
    EXPECT_EQ(record.selected, expected.selected);
    // Of what has indices half the bytes, but for a header and a rounded-up length an exchange.
    const std::uint64_t reduced = ReducedBytes(ConfigOf(Which()), Workers());
    const std::uint64_t half = (expected.payload_bytes - reduced) / 2 + reduced;
    EXPECT_GE(record.payload_bytes, half);
    EXPECT_LE(record.payload_bytes, half + 10 * record.exchanges);
  }
  EXPECT_NE(coded.front().averaged, plain.front().averaged);  // something was rounded
  // Indices alone lose nothing.
  const auto delta = RunLive(ConfigOf(Which(), "", kGaps), Workers(), WideGradient);
  EXPECT_EQ(delta.front().averaged, plain.front().averaged);
  EXPECT_EQ(delta.front().residual, plain.front().residual);
}

class EveryMethodOnADevice : public EveryMethod {};

TEST_P(EveryMethodOnADevice, DoesWhatItDoesOnTheHost) {
  const Method method = Which();
  for (const json& options : std::vector<json>{json::object(), kCoded}) {
    if (!options.empty() && (method.dense() || RefusesCoding(method))) continue;
    if (TraitsOf(ConfigOf(method)).selects) GTEST_SKIP() << "selects in host memory";
    SCOPED_TRACE(options.dump());
    const CellConfig config = ConfigOf(method, ExactSparsifier(method), options);
    const auto expected = RunLive(config, Workers(), IntegerGradient);
    const auto results = RunLive(config, Workers(), IntegerGradient, 999, testing::kEmulated);
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_EQ(results[r].averaged, expected[r].averaged);
      EXPECT_EQ(results[r].residual, expected[r].residual);
      EXPECT_EQ(results[r].mass_checks, expected[r].mass_checks);
      EXPECT_EQ(results[r].mass_violations, 0u);
      for (std::size_t step = 0; step < results[r].records.size(); ++step) {
        const StepRecord& record = results[r].records[step];
        EXPECT_EQ(record.payload_bytes, expected[r].records[step].payload_bytes);
        EXPECT_EQ(record.selected, expected[r].records[step].selected);
        EXPECT_EQ(record.tensors_missing, expected[r].records[step].tensors_missing);
      }
    }
  }
}

TEST_P(EveryMethodOnADevice, RefusesANaN) {
  if (TraitsOf(ConfigOf(Which())).selects) GTEST_SKIP() << "selects in host memory";
  if (Workers() == 2) ExpectNaNRefused(ConfigOf(Which()), Workers(), testing::kEmulated);
}

std::vector<std::string> MethodNames(bool with_dense) {
  std::vector<std::string> names;
  for (const Method& method : BuiltInCatalog().methods) {
    if (with_dense || !method.dense()) names.push_back(method.name);
  }
  names.emplace_back(kInHalves);
  return names;
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethod,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(true)),
                                            ::testing::Values(1, 2, 3, 4)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registered, EveryMethodOnADevice,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(true)),
                                            ::testing::Values(1, 2, 3, 4)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registered, EverySparseMethod,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(false)),
                                            ::testing::Values(1, 2, 3, 4)),
                         NameOf);

TEST(PayloadCoding, LosesOnlyWhatRoundingTakesWithoutFeedback) {
  CellConfig config = ConfigOf(MethodOf("wfbp"), "", kCoded);
  config.feedback = "none";
  const auto results = RunLive(config, 3, WideGradient);
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_GT(rank.mass_checks, 0u);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
}

// Gaps of 65535 and more take six bytes: the model expects as many as random selections have.
TEST(PayloadCoding, IsModelledWithTheEscapesOfARandomSelection) {
  constexpr std::size_t kElements = 1'000'000;
  constexpr int kDraws = 2000;
  std::mt19937 generator(7);
  for (const double density : {1e-6, 5e-6, 4e-5, 4e-4}) {
    CellConfig config = ConfigOf(MethodOf("wfbp"), "", kCoded);
    config.density = density;
    const std::vector<TensorShape> tensors = {
        {"tensor0", {static_cast<std::int64_t>(kElements)}, kElements}};
    const Composition composition = Compose(config);
    const StepRecord modelled =
        SimulateStep(Modelled(config, composition, tensors, 1), 0, 1).records.front();
    const std::size_t count = modelled.selected;

    const std::vector<float> values(count, 1.0f);
    std::vector<std::byte> room(EncodedBytesBound(composition.coding, count, kElements));
    double sum = 0;
    double squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::set<std::uint32_t> chosen;
      while (chosen.size() < count) chosen.insert(generator() % kElements);
      const std::vector<std::uint32_t> indices(chosen.begin(), chosen.end());
      const auto bytes = static_cast<double>(
          EncodePayload(composition.coding, {indices, values}, kElements, room));
      sum += bytes;
      squares += bytes * bytes;
    }
    const double mean = sum / kDraws;
    const double error = std::sqrt(std::max(0.0, squares / kDraws - mean * mean) / kDraws);
    EXPECT_NEAR(static_cast<double>(modelled.payload_bytes), mean, 0.5 + 4 * error)
        << count << " of " << kElements;
  }
}

// Published Ok-Topk finds the k-th largest magnitude once in 32 steps: between, what reaches it is
// sent, about as many.
TEST(Oktopk, SelectsByTheThresholdOfAnEarlierStep) {
  const Method method = MethodOf("oktopk");
  const auto exact = RunLive(ConfigOf(method), 3, IntegerGradient);
  const auto reused = RunLive(ConfigOf(method, "", {{"threshold_period", 32}}), 3, IntegerGradient);
  const auto selected = [](const RankResult& rank, std::size_t step) {
    return static_cast<double>(rank.records[step].selected);
  };
  EXPECT_EQ(LostMass(reused), std::vector<double>(reused.front().residual.size(), 0.0));
  bool differs = false;
  for (std::size_t r = 0; r < reused.size(); ++r) {
    EXPECT_EQ(reused[r].averaged, reused[0].averaged);
    EXPECT_EQ(reused[r].mass_violations, 0u);
    EXPECT_EQ(reused[r].averaged[0], exact[r].averaged[0]);
    for (std::size_t step = 0; step < testing::kLiveSteps; ++step) {
      const double k = selected(exact[r], 0);
      EXPECT_EQ(selected(exact[r], step), k);
      EXPECT_GE(selected(reused[r], step), k / 2);
      EXPECT_LE(selected(reused[r], step), 2 * k);
      differs = differs || selected(reused[r], step) != k;
    }
  }
  EXPECT_TRUE(differs);
}

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
}  // namespace sparfuse::harness
