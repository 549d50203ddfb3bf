// Checks laws of single methods and codings, beyond the laws of every method.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "core/engine/model/model_engine.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/configured_method.hpp"
#include "tests/support/methods/modelled_as_live.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::IntegerGradient;
using testing::LostMass;
using testing::RankResult;

TEST(PayloadCoding, LosesOnlyWhatRoundingTakesWithoutFeedback) {
  CellConfig config = ConfigOf(MethodOf("wfbp"), "", kCoded);
  config.feedback = "none";
  const auto results = RunLive(config, {3, 1}, WideGradient);
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_GT(rank.mass_checks, 0u);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
}

// Gaps of 65535 and more take six bytes; the model expects their number in random selections.
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
        SimulateStep(Modelled(config, composition, tensors, {1, 1}), 0, 1).records.front();
    const std::size_t count = modelled.selected;

    const std::vector<float> values(count, 1.0f);
    std::vector<std::byte> room(EncodedBytesBound(composition.coding, count, kElements));
    double sum = 0;
    double squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::set<std::uint32_t> chosen;
      while (chosen.size() < count)
        chosen.insert(static_cast<std::uint32_t>(generator() % kElements));
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

// A collective that selects has no payload before it runs: its ranks contribute their selections,
// live and in the model.
TEST(Spardl, ContributesWhatItSelects) {
  for (const Topology& topology : {Topology{3, 1}, Topology{4, 1}}) {
    const CellConfig config = ConfigOf(MethodOf("spardl"));
    const StepRecord modelled =
        SimulateStep(Modelled(config, Compose(config), Tensors(), topology), 0, 1).records.front();
    EXPECT_GT(modelled.selected, 0u);
    EXPECT_EQ(modelled.payload_bytes, modelled.selected * kSparseElementBytes);
    for (const auto& rank : RunLive(config, topology, IntegerGradient)) {
      for (const StepRecord& record : rank.records) {
        EXPECT_EQ(record.payload_bytes, modelled.payload_bytes);
        EXPECT_EQ(record.selected, modelled.selected);
      }
    }
  }
}

// Methods that begin with a dense step are modelled by the second one, as most steps are.
TEST(MethodsThatBeginDense, AreModelledByAStepBehindTheFirst) {
  const Topology topology{4, 1};
  for (const auto& [method, options] : std::vector<std::pair<std::string, json>>{
           {"scape", json::object()}, {"arc-topk", {{"memory", "ef21m"}}}}) {
    SCOPED_TRACE(method);
    const CellConfig config = ConfigOf(MethodOf(method), "", options);
    const ModelConfig model = Modelled(config, Compose(config), Tensors(), topology);
    EXPECT_EQ(FirstModelledStep(config, model), 1);
    const auto steps = SimulateCell(config, model, false, 0);
    ASSERT_EQ(steps.size(), 1u);
    const auto live = RunLive(config, topology, IntegerGradient);
    for (std::size_t rank = 0; rank < live.size(); ++rank) {
      EXPECT_EQ(steps[0].records[rank].sent_bytes, live[rank].records[1].sent_bytes);
      EXPECT_LT(live[rank].records[1].sent_bytes, live[rank].records[0].sent_bytes / 4);
    }
    EXPECT_EQ(UsualStepSeconds(config, model), StepSeconds(steps));
  }
  const CellConfig wfbp = ConfigOf(MethodOf("wfbp"));
  EXPECT_EQ(FirstModelledStep(wfbp, Modelled(wfbp, Compose(wfbp), Tensors(), topology)), 0);
}

const json kBloom = {{"payload_indices", "bloom"}};
const json kBoth = {{"payload_indices", "bloom"}, {"payload_values", "fitted"}};

// DeepReduce's policies change the sent elements, and polynomials their values: nothing is lost.
TEST(DeepReduce, LosesNothingInAnyForm) {
  const auto plain = RunLive(ConfigOf(MethodOf("wfbp")), {3, 1}, IntegerGradient);
  for (const auto& [options, rounds] : std::vector<std::pair<json, bool>>{
           {json::object(), false},
           {{{"bloom_policy", "random"}}, false},
           {{{"bloom_policy", "p0"}}, false},
           {{{"bloom_policy", "p0"}, {"bloom_fpr", 0.4}}, false},  // more than a slot holds
           {{{"bloom_fpr", 0.2}}, false},
           {{{"payload_values", "f16"}}, false},
           {{{"payload_values", "fitted"}}, true},
           {{{"payload_values", "fitted"}, {"bloom_policy", "p0"}}, true},
           {{{"payload_values", "fitted"}, {"payload_indices", "u32"}}, true}}) {
    SCOPED_TRACE(options.dump());
    const CellConfig config = ConfigOf(MethodOf("deepreduce"), "", options);
    const auto results = RunLive(config, {3, 1}, IntegerGradient);
    // If values are no integers, LostMass rounds their sum in every step.
    for (const double lost : LostMass(results)) {
      ASSERT_NEAR(lost, 0, rounds ? 0.5 * testing::kLiveSteps + 0.01 : 0);
    }
    for (const RankResult& rank : results) {
      EXPECT_EQ(rank.averaged, results.front().averaged);
      EXPECT_GT(rank.mass_checks, 0u);
      EXPECT_EQ(rank.mass_violations, 0u);
      if (options.contains("bloom_policy") && options["bloom_policy"] == "p0") {
        EXPECT_GT(rank.records[0].selected, plain.front().records[0].selected);
      } else {
        EXPECT_EQ(rank.records[0].selected, plain.front().records[0].selected);
      }
    }
    EXPECT_NE(results.front().averaged, plain.front().averaged);
  }
}

// Any selections: fused before or after, with momentum, or with unequal counts.
TEST(DeepReduce, CodesTheSelectionsOfOtherMethods) {
  for (const char* name : {"safusion-inter", "syncea", "safusion", "hitopkcomm"}) {
    SCOPED_TRACE(name);
    const Method method = MethodOf(name);
    for (const json& options : {kBloom, kBoth}) {
      const CellConfig config = ConfigOf(method, ExactSparsifier(method), options);
      const auto results = RunLive(config, {4, 2}, IntegerGradient);
      const bool rounds = options.contains("payload_values");
      for (const double lost : LostMass(results)) {
        ASSERT_NEAR(lost, 0, rounds ? 0.5 * testing::kLiveSteps + 0.01 : 0);
      }
      for (const RankResult& rank : results) {
        EXPECT_EQ(rank.averaged, results.front().averaged);
        EXPECT_EQ(rank.mass_violations, 0u);
      }
      if (!rounds) ExpectModelledAsLive(method, config, {4, 2});
    }
  }
  for (const char* sparsifier : {"dgc", "redsync", "randomk"}) {
    SCOPED_TRACE(sparsifier);
    const auto results =
        RunLive(ConfigOf(MethodOf("deepreduce"), sparsifier), {3, 1}, IntegerGradient);
    EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
    for (const RankResult& rank : results) EXPECT_EQ(rank.averaged, results.front().averaged);
  }
  CellConfig momentum = ConfigOf(MethodOf("deepreduce"));
  momentum.feedback = "momentum";
  for (const RankResult& rank : RunLive(momentum, {2, 1}, IntegerGradient)) {
    EXPECT_EQ(rank.mass_violations, 0u);
  }
}

// The model's decoding and encoding take the profile's times.
TEST(DeepReduce, IsModelledWithWhatCodingTakes) {
  const CellConfig config = ConfigOf(MethodOf("deepreduce"));
  const Composition composition = Compose(config);
  ModelConfig model = Modelled(config, composition, Tensors(), {2, 1});
  const StepRecord before = SimulateStep(model, 0, 2).records.front();
  model.cost.selection_coding.per_query = 1e-6;
  const StepRecord with = SimulateStep(model, 0, 2).records.front();
  // Two tensors of 9000 and 4097 elements: coded once, and decoded once for each rank.
  EXPECT_NEAR(with.sparsify_seconds - before.sparsify_seconds, 13'097e-6, 1e-9);
  EXPECT_NEAR(with.decompress_seconds - before.decompress_seconds, 2 * 13'097e-6, 1e-9);
}

// Published Ok-Topk finds the k-th largest magnitude once in 32 steps. In between, the elements
// that reach it are sent, about k of them.
TEST(Oktopk, SelectsByTheThresholdOfAnEarlierStep) {
  const Method method = MethodOf("oktopk");
  const auto exact = RunLive(ConfigOf(method), {3, 1}, IntegerGradient);
  const auto reused =
      RunLive(ConfigOf(method, "", {{"threshold_period", 32}}), {3, 1}, IntegerGradient);
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

// A threshold sparsifier gives the ranks different counts. Buffers of the naive scheme would close
// at different tensors, which must not happen.
TEST(SafusionNaive, AgreesOnBuffersWhenCountsDiffer) {
  for (const Method& method : BuiltInCatalog().methods) {
    if (method.name != "safusion-naive") continue;
    const auto results = RunLive(ConfigOf(method, "dgc"), {3, 1}, IntegerGradient);
    EXPECT_EQ(results[0].averaged, results[1].averaged);
    EXPECT_EQ(results[0].averaged, results[2].averaged);
    EXPECT_GT(results[0].records.back().exchanges, 1u);
    EXPECT_GT(results[0].records.back().align_wait_seconds, 0.0);
  }
}

}  // namespace
}  // namespace sparfuse::harness
