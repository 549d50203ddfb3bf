// Checks the laws of every registered method, live and modelled, over ranks that are threads, and
// live on the emulated device. If the environment names a method file, its method is checked
// instead.
#include <gtest/gtest.h>

#include <limits>

#include "core/coding/quantizers/quantizer.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/configured_method.hpp"
#include "tests/support/methods/modelled_as_live.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::IntegerGradient;
using testing::kTensorSizes;
using testing::LostMass;
using testing::RankResult;

// Collectives that sum payloads on the way and strategies that take payloads apart need uncoded
// payloads: reading a file refuses the coding.
bool RefusesCoding(const Method& method) {
  if (method.dense()) return false;
  const bool adds = TraitsOf(ConfigOf(method, "", kPlain)).sums;
  if (!adds && !FindStrategy(method.strategy).owned_parts) return false;
  EXPECT_THROW(Compose(ConfigOf(method, "", kGaps)), Error);
  EXPECT_THROW(Compose(ConfigOf(method, "", kCoded)), Error);
  return true;
}

class EveryMethod : public ::testing::TestWithParam<std::tuple<std::string, Topology>> {
 protected:
  // On nodes with unequal numbers of ranks, some methods refuse to run and say why.
  void SetUp() override {
    const Composition composition = Compose(ConfigOf(Which()));
    const bool ragged = Where().ranks % Where().ranks_per_node != 0;
    try {
      CheckTopology(composition, Where());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kConfig);
      EXPECT_TRUE(ragged) << error.what();
      GTEST_SKIP() << error.what();
    }
    EXPECT_FALSE(ragged && composition.strategy->node_shards);
  }
  Method Which() const { return MethodOf(std::get<0>(GetParam())); }
  Topology Where() const { return std::get<1>(GetParam()); }
  int Workers() const { return Where().ranks; }
};

class EverySparseMethod : public EveryMethod {};

TEST_P(EveryMethod, LosesNothingAndLeavesReplicasEqual) {
  const Method method = Which();
  const CellConfig config = ConfigOf(method);
  const auto results = RunLive(config, Where(), IntegerGradient);
  const auto quantizer = config.method_options.quantizer();
  // Signs times a scale are no integers, and LostMass rounds to integers in every step.
  const bool signs = quantizer && FindQuantizer(*quantizer).needs_feedback;
  const double tolerance = signs ? 0.5 * testing::kLiveSteps + 0.01 : 0;
  // Without feedback, rounding errors are lost.
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
  const auto first = RunLive(config, Where(), IntegerGradient);
  const auto second = RunLive(config, Where(), IntegerGradient);
  EXPECT_EQ(first.front().averaged, second.front().averaged);
  EXPECT_EQ(first.front().residual, second.front().residual);
}

TEST_P(EveryMethod, TreatsATensorWithoutGradientAsZeros) {
  const CellConfig config = ConfigOf(Which());
  const auto zeros = [](int rank, int step, std::size_t tensor) {
    return tensor == 4 ? std::vector<float>(kTensorSizes[4]) : IntegerGradient(rank, step, tensor);
  };
  const auto without = RunLive(config, Where(), IntegerGradient, 4);
  const auto expected = RunLive(config, Where(), zeros);
  EXPECT_EQ(without.front().averaged, expected.front().averaged);
}

void ExpectNaNRefused(const CellConfig& config, const Topology& topology, Device device) {
  const auto poisoned = [](int rank, int step, std::size_t tensor) {
    auto gradient = IntegerGradient(rank, step, tensor);
    if (step == 1 && tensor == 2) gradient[5] = std::numeric_limits<float>::quiet_NaN();
    return gradient;
  };
  try {
    RunLive(config, topology, poisoned, 999, device);
    FAIL() << "a NaN was sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kNumeric);
    const std::string what = error.what();
    // A fused buffer may know only its first tensor.
    EXPECT_TRUE(what.find("tensor2") != std::string::npos ||
                what.find("tensor0") != std::string::npos)
        << what;
  }
}

TEST_P(EveryMethod, RefusesANaN) { ExpectNaNRefused(ConfigOf(Which()), Where(), {}); }

// Both engines run the same strategy. With exact counts they exchange the same units, with equal
// bytes and numbers of messages.
TEST_P(EveryMethod, IsModelledWithTheBytesThatItSends) {
  ExpectModelledAsLive(Which(), ConfigOf(Which(), ExactSparsifier(Which())), Where());
}

// The tensors are too small for escaped gaps, so that these bytes are exact, too.
TEST_P(EverySparseMethod, IsModelledWithTheBytesOfItsCoding) {
  if (RefusesCoding(Which())) return;
  for (const json& coding :
       std::vector<json>{{{"payload_values", "f16"}}, {{"payload_indices", "delta"}}, kCoded}) {
    SCOPED_TRACE(coding.dump());
    ExpectModelledAsLive(Which(), ConfigOf(Which(), ExactSparsifier(Which()), coding), Where());
  }
}

TEST_P(EverySparseMethod, SendsUnitsDenseAndLosesNothing) {
  const Method method = Which();
  const CellConfig config = ConfigOf(method, ExactSparsifier(method), {{"dense_fallback", true}});
  const StrategyDescriptor& strategy = FindStrategy(method.strategy);
  const bool in_steps = strategy.node_shards || strategy.owned_parts;
  if (in_steps || method.strategy == "safusion-naive" || method.sparsifier == "none") {
    EXPECT_THROW(Compose(config), Error);
    return;
  }
  const ModelConfig model = Modelled(config, Compose(config), Tensors(), Where());
  const auto is_dense = [](const Unit& unit) { return unit.sparsified == Sparsified::kNever; };
  EXPECT_TRUE(std::ranges::any_of(model.plan.units, is_dense));
  const auto results = RunLive(config, Where(), IntegerGradient);
  EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
  ExpectModelledAsLive(method, config, Where());
}

// The first two of four steps are sent dense and apply the average. The later steps behave as if
// they were the first.
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
  const Topology topology = Where();
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

// Puts tensors in their order, as if dense tensors did not lie apart.
void PutInOrder(const GradientLayout& layout, std::vector<float>& flat) {
  std::vector<float> ordered;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(layout.tensor(t).offset);
    ordered.insert(ordered.end(), begin,
                   begin + static_cast<std::ptrdiff_t>(layout.tensor(t).numel));
  }
  flat = std::move(ordered);
}

// Some tensors of every unit are never sparsified, even if units are fused first.
TEST_P(EverySparseMethod, CarriesDenseTensors) {
  const Method method = Which();
  CellConfig config = ConfigOf(method, ExactSparsifier(method));
  if (method.sparsifier == "none") GTEST_SKIP() << "sparsifies nothing";
  config.dense_tensors.names = {"tensor0", "tensor4", "tensor7"};
  auto results = RunLive(config, Where(), IntegerGradient);
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
  // Dense tensors have no residual: their average is the average of the gradients.
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
  ExpectModelledAsLive(method, config, Where());
}

// The bytes of a rank in dense exchanges: of tensors that its plan reduces, and of sums within
// nodes.
std::uint64_t ReducedBytes(const CellConfig& config, const Topology& topology) {
  const Composition composition = Compose(config);
  const ModelConfig model = Modelled(config, composition, Tensors(), topology);
  const bool sums_within = composition.strategy->node_shards && topology.ranks_per_node > 1;
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < model.layout.tensors(); ++t) {
    const std::uint64_t tensor = sizeof(float) * model.layout.tensor(t).numel;
    if (model.plan.TensorOf(model.layout, t).reduced) {
      bytes += tensor;
    } else if (sums_within) {
      bytes += 2 * tensor;  // out and back
    }
  }
  return bytes;
}

TEST_P(EverySparseMethod, FeedsBackWhatCodingTakes) {
  if (RefusesCoding(Which())) return;
  const auto plain = RunLive(ConfigOf(Which(), "", kPlain), Where(), WideGradient);
  const auto coded = RunLive(ConfigOf(Which(), "", kCoded), Where(), WideGradient);
  EXPECT_EQ(LostWideMass(coded), std::vector<double>(coded.front().residual.size(), 0.0));
  const std::uint64_t reduced = ReducedBytes(ConfigOf(Which()), Where());
  for (std::size_t r = 0; r < coded.size(); ++r) {
    const RankResult& rank = coded[r];
    EXPECT_EQ(rank.averaged, coded.front().averaged);
    EXPECT_GT(rank.mass_checks, 0u);
    EXPECT_EQ(rank.mass_violations, 0u);
    const StepRecord& record = rank.records.front();
    const StepRecord& expected = plain[r].records.front();
    EXPECT_EQ(record.selected, expected.selected);
    // Data with indices take half the bytes, apart from a header and a rounded-up length an
    // exchange.
    const std::uint64_t half = (expected.payload_bytes - reduced) / 2 + reduced;
    EXPECT_GE(record.payload_bytes, half);
    EXPECT_LE(record.payload_bytes, half + 10 * record.exchanges);
  }
  EXPECT_NE(coded.front().averaged, plain.front().averaged);  // something was rounded
  // Coding the indices alone loses nothing.
  const auto delta = RunLive(ConfigOf(Which(), "", kGaps), Where(), WideGradient);
  EXPECT_EQ(delta.front().averaged, plain.front().averaged);
  EXPECT_EQ(delta.front().residual, plain.front().residual);
}

class EveryMethodOnADevice : public EveryMethod {};

// Filters and fitted values are made in host memory, and other devices are refused.
bool RefusesDevices(const CellConfig& config, const Topology& topology) {
  const PayloadCoding coding = Compose(config).coding;
  if (!coding.of_selections() || coding.indices == IndexCoding::kU12) return false;
  try {
    RunLive(config, topology, IntegerGradient, 999, testing::kEmulated);
    ADD_FAILURE() << "ran on a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kUnsupported);
    EXPECT_SAYS(std::string(error.what()), "expected device \"cpu\"");
  }
  return true;
}

TEST_P(EveryMethodOnADevice, DoesWhatItDoesOnTheHost) {
  const Method method = Which();
  for (const json& options : std::vector<json>{json::object(), kCoded}) {
    if (!options.empty() && (method.dense() || RefusesCoding(method))) continue;
    if (TraitsOf(ConfigOf(method)).selects) GTEST_SKIP() << "selects in host memory";
    if (RefusesDevices(ConfigOf(method, "", options), Where())) continue;
    SCOPED_TRACE(options.dump());
    const CellConfig config = ConfigOf(method, ExactSparsifier(method), options);
    const auto expected = RunLive(config, Where(), IntegerGradient);
    const auto results = RunLive(config, Where(), IntegerGradient, 999, testing::kEmulated);
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
  // A sparsifier of somebody's own has not been linked with the emulated device.
  const bool own = IsOutsidePart(Which().sparsifier);
  const CellConfig config = ConfigOf(Which(), own ? "topk" : "");
  if (TraitsOf(config).selects) GTEST_SKIP() << "selects in host memory";
  if (RefusesDevices(config, Where())) return;
  if (Workers() == 2) ExpectNaNRefused(config, Where(), testing::kEmulated);
}

std::vector<std::string> MethodNames(bool with_dense) {
  std::vector<std::string> names;
  if (const Method* method = MethodOfFile()) {
    if (with_dense || !method->dense()) names.push_back(method->name);
    return names;
  }
  for (const Method& method : TheCatalog().methods) {
    // tests/core/localsteps has the laws of methods that exchange parameters.
    if (FindStrategy(method.strategy).local_steps != nullptr) continue;
    if (FindStrategy(method.strategy).delays) continue;  // tested there, too
    if (with_dense || !method.dense()) names.push_back(method.name);
  }
  names.emplace_back(kInHalves);
  return names;
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<std::string, Topology>>& info) {
  const Topology& where = std::get<1>(info.param);
  std::string name = std::get<0>(info.param) + "_" + std::to_string(where.ranks);
  if (where.ranks_per_node > 1) name += "_" + std::to_string(where.ranks_per_node) + "_a_node";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Nodes of one, two and four ranks, and nodes whose last one has fewer ranks.
constexpr Topology kTopologies[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {2, 2},
                                    {4, 2}, {4, 4}, {8, 4}, {3, 2}, {7, 4}};

// A device does what the host does, which has run on all of these. One of each kind is enough: more
// ranks on two processors are three times the time.
constexpr Topology kTopologiesOfDevices[] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {4, 2}, {3, 2}};

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethod,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(true)),
                                            ::testing::ValuesIn(kTopologies)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registered, EveryMethodOnADevice,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(true)),
                                            ::testing::ValuesIn(kTopologiesOfDevices)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registered, EverySparseMethod,
                         ::testing::Combine(::testing::ValuesIn(MethodNames(false)),
                                            ::testing::ValuesIn(kTopologies)),
                         NameOf);

}  // namespace
}  // namespace sparfuse::harness
