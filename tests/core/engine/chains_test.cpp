// Tests chains of exchanges: units that are summed within nodes first, and units whose parts are
// summed by the ranks that own them.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/engine/strategies.hpp"
#include "core/fusion/plan.hpp"
#include "tests/support/communicators/stopping_communicator.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

enum class Chain { kNone, kNodeShards, kNodeTensors, kOwnedParts, kForgetfulOwners };

struct Case {
  Chain chain = Chain::kNone;
  Topology topology = {};
  std::uint16_t partitions = 1;
  double density = 0.05;
  Device device = {};
  std::size_t tensors = 3;  // of a unit
  std::string_view sparsifier = "topk";
  double begins_with = 1;  // factor on the density in the first step
  const char* quantizer = nullptr;
};

// Called by googletest.
void PrintTo(const Case& of_case, std::ostream* out) {
  *out << static_cast<int>(of_case.chain) << ", " << of_case.topology.ranks << " ranks, "
       << of_case.topology.ranks_per_node << " a node, " << of_case.partitions << " partitions";
}

// A layout of matrices, which the shards cut through.
GradientLayout Layout() { return MatricesOf(kTensorSizes); }

Plan PlanFor(const Case& of_case) {
  Plan plan;
  for (std::size_t first = 0; first < kTensorSizes.size(); first += of_case.tensors) {
    plan.units.push_back({first, std::min(first + of_case.tensors, kTensorSizes.size()),
                          Sparsified::kBehind, of_case.density, Lane::kCompute,
                          of_case.partitions});
  }
  return plan;
}

std::unique_ptr<Strategy> StrategyOf(Chain chain) {
  if (chain == Chain::kNodeShards) return std::make_unique<NodeShards>();
  if (chain == Chain::kNodeTensors) return std::make_unique<NodeShards>(NodeShards::Cut::kTensors);
  if (chain == Chain::kOwnedParts) return std::make_unique<OwnedParts>();
  if (chain == Chain::kForgetfulOwners) return std::make_unique<OwnedParts>(false);
  return std::make_unique<UnitStrategy>();
}

std::unique_ptr<Quantizer> QuantizerOf(const Case& of_case) {
  return FindQuantizer(of_case.quantizer).make({}, 1);
}

std::vector<RankResult> RunCase(const Case& of_case, std::chrono::milliseconds wait = kLiveDeadline,
                                const Wrap& wrap = Unwrapped,
                                const Gradients& gradient = IntegerGradient) {
  return RunLive(
      [&] {
        LiveConfig config = SparseLive(PlanFor(of_case), of_case.topology, of_case.device);
        config.layout = Layout();
        config.strategy = StrategyOf(of_case.chain);
        config.sparsifier = SparsifierOf(of_case.sparsifier);
        if (of_case.quantizer != nullptr) config.dense_quantizer = QuantizerOf(of_case);
        return config;
      },
      of_case.topology.ranks, gradient, 999,
      [&](LiveEngine& engine, int step) { engine.SetDensity(step == 0 ? of_case.begins_with : 1); },
      wrap, 0, wait);
}

void ExpectSoundAndChecked(const std::vector<RankResult>& results,
                           const Gradients& gradient = IntegerGradient) {
  ExpectSound(results, gradient);
  for (const RankResult& rank : results) {
    const bool selects = std::ranges::any_of(
        rank.records, [](const StepRecord& record) { return record.selected > 0; });
    EXPECT_EQ(rank.mass_checks > 0, selects);
  }
  EXPECT_GT(results[0].mass_checks, 0u);
}

class Chains : public ::testing::TestWithParam<Case> {
 protected:
  static Topology Where() { return GetParam().topology; }
};

TEST_P(Chains, LoseNothingAndLeaveReplicasEqual) { ExpectSoundAndChecked(RunCase(GetParam())); }

TEST_P(Chains, LoseNothingOnADevice) {
  Case of_case = GetParam();
  of_case.device = kEmulated;
  ExpectSoundAndChecked(RunCase(of_case));
}

TEST_P(Chains, WithAllElementsAreTheDenseSum) {
  Case of_case = GetParam();
  of_case.density = 1;
  const auto results = RunCase(of_case);
  for (int step = 0; step < kLiveSteps; ++step) {
    std::size_t at = 0;
    for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
      std::vector<float> sum(kTensorSizes[t]);
      for (int rank = 0; rank < Where().ranks; ++rank) {
        const auto gradient = IntegerGradient(rank, step, t);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
      }
      for (const float value : sum) {
        ASSERT_EQ(results[0].averaged[static_cast<std::size_t>(step)][at++],
                  value * (1.0f / static_cast<float>(Where().ranks)));
      }
    }
  }
}

void ExpectModelled(const Case& of_case, const std::vector<RankResult>& live) {
  ModelConfig model = EvenModelOf(Layout(), PlanFor(of_case), of_case.topology);
  model.make_strategy = [&] { return StrategyOf(of_case.chain); };
  if (of_case.quantizer != nullptr) {
    model.dense_quantizer = QuantizerOf(of_case);
    model.cost.encode_seconds[of_case.quantizer] = PiecewiseLinear({{0, 0}});
    model.cost.decode[of_case.quantizer] = {};
  }
  ExpectCountedAsModelled(SimulateStep(model, 0, 0), live);
}

TEST_P(Chains, AreModelledWithTheBytesThatAreCounted) {
  ExpectModelled(GetParam(), RunCase(GetParam()));
}

std::vector<Case> Cases(std::vector<Case> all, std::size_t sanitized) {
  if (kSanitized) all.resize(sanitized);
  return all;
}

INSTANTIATE_TEST_SUITE_P(NodeShards, Chains,
                         ::testing::ValuesIn(Cases({{Chain::kNodeShards, {4, 2}},
                                                    {Chain::kNodeShards, {6, 3}},
                                                    {Chain::kNodeShards, {4, 1}},
                                                    {Chain::kNodeShards, {1, 1}},
                                                    {Chain::kNodeShards, {2, 2}},
                                                    {Chain::kNodeShards, {8, 4}}},
                                                   3)));
INSTANTIATE_TEST_SUITE_P(NodeTensors, Chains,
                         ::testing::ValuesIn(Cases({{Chain::kNodeTensors, {4, 2}},
                                                    {Chain::kNodeTensors, {6, 3}},
                                                    {Chain::kNodeTensors, {4, 1}},
                                                    {Chain::kNodeTensors, {2, 2}},
                                                    // more ranks on a node than a unit has tensors
                                                    {Chain::kNodeTensors, {8, 4}}},
                                                   3)));
INSTANTIATE_TEST_SUITE_P(OwnedParts, Chains,
                         ::testing::ValuesIn(Cases({{Chain::kOwnedParts, {3, 1}, 2},
                                                    {Chain::kOwnedParts, {4, 2}, 4},
                                                    {Chain::kOwnedParts, {3, 2}, 3},
                                                    {Chain::kOwnedParts, {1, 1}, 4},
                                                    {Chain::kOwnedParts, {2, 1}, 2},
                                                    {Chain::kOwnedParts, {4, 1}, 1},
                                                    {Chain::kOwnedParts, {5, 1}, 8},
                                                    {Chain::kOwnedParts, {5, 4}, 2}},
                                                   3)));

// The stopped rank owns no part in one case, and the last part in another.
TEST(Chains, NameARankThatStopsInAnyOfTheirSteps) {
  std::vector<StoppedRun> runs;
  for (const Case& of_case :
       {Case{Chain::kNodeShards, {4, 2}}, Case{Chain::kNodeTensors, {4, 2}},
        Case{Chain::kOwnedParts, {4, 1}, 3}, Case{Chain::kOwnedParts, {4, 1}, 4}}) {
    const auto messages = static_cast<int>(RunCase(of_case)[3].records.front().messages_sent);
    runs.push_back(
        {3, messages, [of_case](const Wrap& wrap, auto wait) { RunCase(of_case, wait, wrap); }});
  }
  ExpectTheStoppedRankIsNamed(runs);
}

// Selections exceed the room that the plan's density makes: the first steps of a warm-up keep more
// elements, and every row of a matrix sends at least one.
TEST(Chains, HaveRoomForWhatIsSelected) {
  for (const Chain chain : {Chain::kNodeShards, Chain::kNodeTensors, Chain::kOwnedParts}) {
    for (const std::uint16_t partitions : {std::uint16_t{1}, std::uint16_t{3}}) {
      for (const Device device : {Device{}, kEmulated}) {
        Case of_case{chain, {4, 2}, partitions, 0.001, device};
        of_case.begins_with = 250;
        const auto warmed_up = RunCase(of_case);
        ExpectSoundAndChecked(warmed_up);
        EXPECT_GT(warmed_up[1].records[0].sent_bytes, warmed_up[1].records[1].sent_bytes);
        of_case.begins_with = 1;
        of_case.tensors = 1;
        of_case.sparsifier = "adtopk";
        ExpectSoundAndChecked(RunCase(of_case));
      }
    }
  }
}

// The second half of every tensor is zero on all ranks, so that some parts and shards have nothing
// to send. Top-k sends their zeros, a threshold sends nothing.
TEST(Chains, LoseNothingWhereAPartIsZero) {
  const auto halved = [](int rank, int step, std::size_t tensor) {
    auto gradient = IntegerGradient(rank, step, tensor);
    std::fill(gradient.begin() + static_cast<std::ptrdiff_t>(gradient.size() / 2), gradient.end(),
              0.0f);
    return gradient;
  };
  for (Case of_case : {Case{Chain::kNodeShards, {4, 2}}, Case{Chain::kNodeShards, {8, 4}},
                       Case{Chain::kOwnedParts, {4, 1}, 4}, Case{Chain::kOwnedParts, {4, 2}, 2}}) {
    of_case.tensors = 1;
    for (const char* sparsifier : {"topk", "dgc"}) {
      of_case.sparsifier = sparsifier;
      const auto results = RunCase(
          of_case, kLiveDeadline, [](std::unique_ptr<Communicator> world) { return world; },
          halved);
      ExpectSoundAndChecked(results, halved);
      if (of_case.sparsifier == "topk") ExpectModelled(of_case, results);
    }
  }
}

// On one node, the applied elements are the largest ones of each shard. A shard holds the dense sum
// plus its residual.
TEST(NodeShards, OfOneNodeSelectFromTheDenseSum) {
  const Case of_case{Chain::kNodeShards, {4, 4}};
  const auto results = RunCase(of_case);
  const GradientLayout layout = Layout();
  std::vector<float> left(layout.numel());
  for (int step = 0; step < kLiveSteps; ++step) {
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      for (int rank = 0; rank < 4; ++rank) {
        const auto gradient = IntegerGradient(rank, step, t);
        for (std::size_t i = 0; i < gradient.size(); ++i)
          left[layout.tensor(t).offset + i] += gradient[i];
      }
    }
    std::vector<float> applied(left.size());
    for (const Unit& unit : PlanFor(of_case).units) {
      for (int shard = 0; shard < 4; ++shard) {
        const Range range = ShardOf(layout.RangeOf(unit.first, unit.last), shard, 4);
        std::vector<std::size_t> order(range.size());
        std::iota(order.begin(), order.end(), range.begin);
        std::ranges::stable_sort(order, std::greater<>(),
                                 [&](std::size_t i) { return std::abs(left[i]); });
        order.resize(KeptCount(range.size(), of_case.density));
        for (const std::size_t i : order) applied[i] = std::exchange(left[i], 0.0f) / 4;
      }
    }
    EXPECT_EQ(results[0].averaged[static_cast<std::size_t>(step)], applied) << step;
  }
}

TEST(OwnedParts, OfOneRankSelectsTwiceTheSame) {
  const auto flat = RunCase({Chain::kNone, {1, 1}});
  const auto parts = RunCase({Chain::kOwnedParts, {1, 1}});
  EXPECT_EQ(parts[0].averaged, flat[0].averaged);
  EXPECT_EQ(parts[0].residual, flat[0].residual);
}

// A rank's residual takes the unsent elements of its own gradient. The unsent elements of the
// owners' sums are lost. The mass check covers only selections that have a residual.
TEST(OwnedParts, WithoutAResidualOwnersForgetWhatTheyDoNotSend) {
  const auto kept = RunCase({Chain::kOwnedParts, {3, 1}, 2});
  const auto lost = RunCase({Chain::kForgetfulOwners, {3, 1}, 2});
  EXPECT_EQ(lost[0].averaged[0], kept[0].averaged[0]);  // owners have no residual yet
  EXPECT_NE(lost[0].averaged[1], kept[0].averaged[1]);
  EXPECT_NE(LostMass(lost), std::vector<double>(lost[0].residual.size(), 0.0));
  ExpectEqualReplicas(lost);
  for (std::size_t rank = 0; rank < lost.size(); ++rank) {
    EXPECT_EQ(lost[rank].records[0].sent_bytes, kept[rank].records[0].sent_bytes);
  }
}

// The decoded values of x after encoding it without a residual.
std::vector<float> Coded(const Quantizer& quantizer, std::span<const float> x) {
  ThreadPool pool(1);
  Workspace workspace;
  std::vector<std::byte> code(quantizer.EncodedBytes(x.size()));
  quantizer.Encode({&pool, &workspace, 0}, {{x.data(), x.size(), {}}, {nullptr, 0, {}}},
                   {0, "part", {}, 0}, code);
  std::vector<float> decoded(x.size());
  const std::span<const std::byte> codes[] = {code};
  AccumulateQuantized(quantizer, codes, 1, decoded, pool);
  return decoded;
}

// Parts of density 1: the ranks' payloads are quantized, and so are the owners' sums.
TEST(OwnedParts, MayTravelWholeByAQuantizer) {
  const Case cases[] = {{Chain::kOwnedParts, {3, 1}, 2, 1},
                        {Chain::kOwnedParts, {4, 2}, 4, 1},
                        {Chain::kOwnedParts, {1, 1}, 4, 1}};
  for (const char* name : {"sign", "fp16"}) {
    for (Case of_case : cases) {
      of_case.quantizer = name;
      const auto quantizer = QuantizerOf(of_case);
      for (const Device device : {Device{}, kEmulated}) {
        if (device.kind != DeviceKind::kHost && !quantizer->WorksOnDevice()) continue;
        of_case.device = device;
        SCOPED_TRACE(std::string(name) + " on " + std::to_string(of_case.topology.ranks) +
                     " ranks, " + NameOf(device));
        const auto results = RunCase(of_case);
        ExpectModelled(of_case, results);
        ExpectEqualReplicas(results);
        // The first step has no residuals.
        const GradientLayout layout = Layout();
        std::vector<std::vector<float>> flat;
        for (int rank = 0; rank < of_case.topology.ranks; ++rank) {
          flat.emplace_back();
          for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
            std::ranges::copy(IntegerGradient(rank, 0, t), std::back_inserter(flat.back()));
          }
        }
        for (const Unit& unit : PlanFor(of_case).units) {
          const Range range = layout.RangeOf(unit.first, unit.last);
          const int parts = std::min<int>(of_case.partitions, of_case.topology.ranks);
          for (int j = 0; j < parts; ++j) {
            const Range part = ShardOf(range, j, parts);
            std::vector<float> sum(part.size());
            for (const std::vector<float>& own : flat) {
              const auto coded = Coded(*quantizer, std::span(own).subspan(part.begin, part.size()));
              for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += coded[i];
            }
            const auto again = Coded(*quantizer, sum);
            for (std::size_t i = 0; i < sum.size(); ++i) {
              ASSERT_EQ(results[0].averaged[0][part.begin + i],
                        again[i] * (1.0f / static_cast<float>(of_case.topology.ranks)));
            }
          }
        }
      }
    }
  }
}

// Counts 5 % of the elements of three units of 651, 9067 and 4225 elements, but at least one of
// each part, whichever rank selects them. The owners' selections from sums do not count again.
TEST(Chains, CountWhatIsSelectedAtFirst) {
  struct Counted {
    Case of_case;
    std::uint64_t selected;  // of each rank
  };
  for (const auto& [of_case, selected] :
       {Counted{{Chain::kNone, {4, 1}}, 32 + 453 + 211},
        // Halves of 326 and 325, 4534 and 4533, 2113 and 2112 elements, for both ranks of the node.
        Counted{{Chain::kNodeShards, {4, 2}}, 2 * (16 + 226 + 105)},
        Counted{{Chain::kNodeShards, {4, 1}}, 32 + 453 + 211},
        Counted{{Chain::kOwnedParts, {3, 1}, 1}, 32 + 453 + 211},
        // Each part separately: 2 * 16, 2 * 226, 2 * 105.
        Counted{{Chain::kOwnedParts, {3, 1}, 2}, 32 + 452 + 210}}) {
    for (const RankResult& rank : RunCase(of_case)) {
      for (const StepRecord& record : rank.records) EXPECT_EQ(record.selected, selected);
    }
  }
}

TEST(NodeShards, ResidualsLieOnTheOwnShards) {
  for (const Chain chain : {Chain::kNodeShards, Chain::kNodeTensors}) {
    const Case of_case{chain, {6, 3}};
    const auto results = RunCase(of_case);
    const GradientLayout layout = Layout();
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      std::vector<bool> own(layout.numel());
      const int place = of_case.topology.LocalRankOf(static_cast<int>(rank));
      for (const Unit& unit : PlanFor(of_case).units) {
        const Range range = layout.RangeOf(unit.first, unit.last);
        const Range shard =
            chain == Chain::kNodeShards
                ? ShardOf(range, place, 3)
                : ShardsOfTensors(layout, range, 3)[static_cast<std::size_t>(place)];
        std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(shard.begin), shard.size(), true);
      }
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (own[i]) continue;
        EXPECT_EQ(results[rank].residual[i], 0.0f) << rank << ", " << i;
      }
    }
  }
}

// The longest shard is as short as whole tensors allow, and no tensor is cut.
TEST(NodeTensors, ShardsAreRunsOfTensors) {
  const auto sizes = [](const std::vector<std::size_t>& tensors, int members) {
    const GradientLayout layout = LayoutOf(tensors);
    std::vector<std::size_t> shards;
    std::size_t at = 0;
    for (const Range& shard : ShardsOfTensors(layout, {0, layout.numel()}, members)) {
      EXPECT_EQ(shard.begin, at);
      at = shard.end;
      shards.push_back(shard.size());
    }
    EXPECT_EQ(at, layout.numel());
    return shards;
  };
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes({5, 5, 5, 5}, 2), (Sizes{10, 10}));
  EXPECT_EQ(sizes({9, 1, 1, 1, 1, 1}, 2), (Sizes{9, 5}));
  EXPECT_EQ(sizes({1, 1, 1, 1, 1, 9}, 2), (Sizes{5, 9}));
  EXPECT_EQ(sizes({2, 3, 4, 5, 6, 7}, 3), (Sizes{9, 11, 7}));
  EXPECT_EQ(sizes({9, 1, 1, 1, 1, 1}, 3), (Sizes{9, 4, 1}));
  EXPECT_EQ(sizes({1, 9, 1}, 3), (Sizes{1, 9, 1}));
  EXPECT_EQ(sizes({100, 1}, 4), (Sizes{100, 1, 0, 0}));
  EXPECT_EQ(sizes({7}, 3), (Sizes{7, 0, 0}));
  EXPECT_EQ(sizes({3, 4}, 1), (Sizes{7}));
}

// One unit on two nodes of two ranks, without computation.
ModelConfig OnTwoNodes(Chain chain, const std::vector<std::size_t>& tensors, double density) {
  ModelConfig model = EvenModelOf(
      LayoutOf(tensors), {{Unit{0, tensors.size(), Sparsified::kBehind, density}}}, {4, 2});
  model.make_strategy = [chain] { return StrategyOf(chain); };
  model.backward = {0, 0, std::vector<double>(tensors.size()), 0, 0};
  return model;
}

// Two nodes of two ranks, tensors of 700 and 300 elements at 10 %. Within a node the longer shard
// sets the pace of both halves of the ring; between nodes it sends 70 elements, the other one 30.
TEST(NodeTensors, TimeByHand) {
  const ModelStep step = SimulateStep(OnTwoNodes(Chain::kNodeTensors, {700, 300}, 0.1), 0, 0);
  const double byte = 8e-9, start = 1e-4;
  const double within = 2 * (start + 2800 * byte), between = start + (560 + 240) * byte;
  EXPECT_NEAR(step.records[0].exposed_communication_seconds, within + between, 1e-6);
}

TEST(NodeShards, OneRankANodeIsBehind) {
  const auto flat = RunCase({Chain::kNone, {4, 1}});
  const auto shards = RunCase({Chain::kNodeShards, {4, 1}});
  for (std::size_t rank = 0; rank < flat.size(); ++rank) {
    EXPECT_EQ(shards[rank].averaged, flat[rank].averaged);
    EXPECT_EQ(shards[rank].residual, flat[rank].residual);
  }
}

// Two nodes of two ranks, one unit of 1000 elements at 10 %: shards of 500, each of which sends 50.
// Within a node, two ranks halve 1000 floats (2000 bytes each way), twice. Between nodes travel 50
// elements of 8 bytes.
TEST(NodeShards, TimeByHand) {
  const ModelStep step = SimulateStep(OnTwoNodes(Chain::kNodeShards, {1000}, 0.1), 0, 0);
  // The two ranks of a node share its card, so that their payloads leave one after the other.
  const double byte = 8e-9, start = 1e-4;
  const double within = 2 * (start + 2000 * byte), between = start + 2 * 400 * byte;
  EXPECT_NEAR(step.records[0].exposed_communication_seconds, within + between, 1e-6);
}

// The quantizer decodes shards that are sent whole, the sparsifier decodes the others.
TEST(NodeShards, DecodeByWhatEncodedThem) {
  const auto decompress = [](double density) {
    ModelConfig model = OnTwoNodes(Chain::kNodeShards, {1000}, density);
    model.dense_quantizer = FindQuantizer("sign").make({}, 1);
    model.cost.encode_seconds["sign"] = PiecewiseLinear({{0, 0}});
    model.cost.decode["sign"] = {.per_call = 2};
    model.cost.decode["topk"] = {.per_call = 30};
    return SimulateStep(model, 0, 0).records[0].decompress_seconds;
  };
  EXPECT_NEAR(decompress(1), 2, 0.1);
  EXPECT_NEAR(decompress(0.1), 30, 0.1);
}

}  // namespace
}  // namespace sparfuse::testing
