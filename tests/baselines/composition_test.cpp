// Tests the compositions of methods: the options of their payloads, and their refusals.
#include "baselines/composition.hpp"

#include <gtest/gtest.h>

#include <string>

#include "baselines/registry.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

MethodParts Behind() {
  MethodParts parts;
  parts.strategy = "behind";
  parts.planner = "whole-model";
  parts.collective = "sparse-allgather";
  parts.sparsifier = &FindSparsifier("topk");
  parts.density = 0.01;
  parts.feedback = "residual";
  return parts;
}

void ExpectRefused(const MethodParts& parts, const std::string& text) {
  testing::ExpectError(FailureKind::kConfig, {text}, [&] { Compose(parts); });
}

TEST(Compose, TakesDenseStepsWhereUnitsCanBeDense) {
  EXPECT_EQ(Compose(Behind()).dense_warmup_steps, 0u);
  MethodParts parts = Behind();
  parts.sending = {{"dense_warmup_steps", std::int64_t{512}}};
  EXPECT_EQ(Compose(parts).dense_warmup_steps, 512u);

  MethodParts naive = parts;
  naive.strategy = "safusion-naive";
  ExpectRefused(naive, "dense_warmup_steps = 512 with strategy \"safusion-naive\"");
  MethodParts momentum = parts;
  momentum.feedback = "momentum";
  ExpectRefused(momentum, "dense_warmup_steps = 512 with feedback \"momentum\"");
  MethodParts dense = parts;
  dense.strategy = "dense-units";
  dense.collective = "ring-allreduce";
  dense.sparsifier = nullptr;
  dense.density = 1;
  dense.feedback = "none";
  ExpectRefused(dense, "dense_warmup_steps = 512: strategy \"dense-units\" sends dense gradients");
  parts.sending = {{"dense_warmup_steps", std::int64_t{-1}}};
  ExpectRefused(parts, "dense_warmup_steps = -1");
}

TEST(Compose, CodesSelectionsOneByOne) {
  MethodParts parts = Behind();
  parts.sending = {{"payload_indices", std::string("bloom")},
                   {"payload_values", std::string("fitted")},
                   {"bloom_policy", std::string("p0")},
                   {"bloom_fpr", 0.01}};
  EXPECT_EQ(Compose(parts).coding,
            (PayloadCoding{ValueCoding::kFitted, IndexCoding::kBloom, BloomPolicy::kAll, 0.01}));
  MethodParts owned = parts;
  owned.strategy = "owned-parts";
  ExpectRefused(owned, "payload_indices = bloom, payload_dense = indexed: strategy");
  MethodParts sums = parts;
  sums.collective = "sparcml-split-allgather";
  ExpectRefused(sums, "adds payloads on the way; expected \"f32\" and \"u32\"");
  parts.sending["bloom_fpr"] = 0.6;
  ExpectRefused(parts, "bloom_fpr = 0.6");
  parts.sending = {{"bloom_fpr", 0.01}};
  ExpectRefused(parts, "bloom_fpr = 0.01 with payload_indices = u32: expected \"bloom\"");
  parts.sending = {{"bloom_policy", std::string("random")},
                   {"payload_indices", std::string("delta")}};
  ExpectRefused(parts, "bloom_policy = random with payload_indices = delta");
  parts.sending = {{"payload_values", std::string("fitted")},
                   {"payload_indices", std::string("delta")}};
  ExpectRefused(parts, "payload_values = fitted, payload_indices = delta: values are fitted");
}

TEST(Compose, LetsTopkReuseItsThresholdWhereCountsMayDiffer) {
  EXPECT_EQ(Compose(Behind()).threshold_period, 1);
  MethodParts parts = Behind();
  parts.sending = {{"threshold_period", std::int64_t{0}}};
  EXPECT_EQ(Compose(parts).threshold_period, 1);  // exact unless a period is set
  parts.sending = {{"threshold_period", std::int64_t{32}}};
  EXPECT_EQ(Compose(parts).threshold_period, 32);
  parts.collective = "gtopk";
  ExpectRefused(parts, "threshold_period = 32 with the sparsifier \"topk\"");
  parts.sending = {};
  EXPECT_NO_THROW(Compose(parts));
}

// Owners sum their payloads: either index by index, or whole parts that a quantizer codes.
TEST(Compose, GivesOwnersWhatTheyCanAddUp) {
  MethodParts parts = Behind();
  parts.strategy = "owned-parts";
  parts.planner = "hipress";
  EXPECT_NO_THROW(Compose(parts));
  MethodParts signs = parts;
  signs.sending = {{"payload_dense", std::string("sign")}};
  EXPECT_NO_THROW(Compose(signs));
  signs.strategy = signs.planner = "espresso";
  ExpectRefused(signs, "strategy \"espresso\" takes payloads apart and adds them up");
  MethodParts halves = parts;
  halves.sending = {{"payload_values", std::string("f16")}};
  ExpectRefused(halves, "strategy \"owned-parts\" takes payloads apart and adds them up");
  MethodParts ring = parts;
  ring.collective = "casync-ring";
  ExpectRefused(ring, "the collective \"casync-ring\"");
}

TEST(Compose, KnowsThatOwnersWithoutAResidualLose) {
  MethodParts parts = Behind();
  parts.strategy = "owned-parts";
  const auto loses = [&] {
    GradientLayout layout;
    layout.Add("weight", {10}, 10);
    const Composition made = Compose(parts);
    return MakeLiveConfig(made, layout, MakePlan(made, layout, {2, 1}, nullptr, nullptr), {2, 1}, 1)
        .strategy_loses;
  };
  EXPECT_FALSE(loses());
  for (const char* option : {"server_ef", "local_ef"}) {
    parts.strategy_options = {{option, false}};
    EXPECT_TRUE(loses()) << option;
  }
}

// Strategies that send units in several steps, with planners that use times.
MethodParts InSteps(const std::string& strategy) {
  MethodParts parts = Behind();
  parts.strategy = strategy;
  parts.planner = strategy == "espresso" ? "espresso" : "cupcake";
  return parts;
}

constexpr const char* kInSteps[] = {"node-shards", "node-tensors", "owned-parts", "espresso"};

TEST(Compose, RefusesWhatChainsCannotKeepOrPredict) {
  for (const std::string strategy : kInSteps) {
    SCOPED_TRACE(strategy);
    MethodParts parts = InSteps(strategy);
    ASSERT_TRUE(Compose(parts).needs_profile());
    parts.sending = {{"replan_every", std::int64_t{5}}};
    ExpectRefused(parts, "replan_every = 5 with strategy \"" + strategy +
                             "\": residuals belong to parts of units");
    parts.sending = {{"dense_fallback", true}};
    ExpectRefused(parts, "dense_fallback with strategy \"" + strategy +
                             "\", which sends units in several exchanges");
  }
  MethodParts flat = InSteps("behind");
  flat.sending = {{"replan_every", std::int64_t{5}}, {"dense_fallback", true}};
  EXPECT_NO_THROW(Compose(flat));
}

TEST(Compose, RefusesShardsOfWhatACollectiveNeedsWhole) {
  for (const std::string collective :
       {"demo-coefficients", "powersgd-factors", "powersgd-blocks", "arc-rows"}) {
    SCOPED_TRACE(collective);
    for (const std::string strategy : {"node-shards", "espresso", "node-tensors", "behind"}) {
      MethodParts parts = InSteps(strategy);
      parts.collective = collective;
      if (collective != "arc-rows") parts.sparsifier = nullptr;
      if (strategy == "behind" || strategy == "node-tensors") {
        EXPECT_NO_THROW(Compose(parts));
      } else {
        ExpectRefused(parts, "works on whole tensors, but strategy \"" + strategy + "\"");
      }
    }
  }
}

// Without a density they would select nothing, and all gradients would be lost.
TEST(Compose, RefusesCollectivesThatSelectWithoutADensity) {
  for (const CollectiveDescriptor& each : Collectives()) {
    const CollectiveTraits traits = each.TraitsOf(ResolveOptions(each.name, each.options, {}));
    if (!traits.selects) continue;
    SCOPED_TRACE(each.name);
    MethodParts parts = Behind();
    parts.collective = each.name;
    EXPECT_NO_THROW(Compose(parts));
    parts.sparsifier = nullptr;
    if (traits.sizes_itself) {
      EXPECT_NO_THROW(Compose(parts));
    } else {
      ExpectRefused(parts, "the sparsifier is \"none\", but the collective");
    }
  }
}

TEST(Compose, NamesTheStrategiesThatSendTheUnitsOfAPlan) {
  MethodParts naive = Behind();
  naive.strategy = "safusion-naive";
  naive.planner = "given";
  naive.planner_options = {{"units", std::string("1")}};
  for (const StrategyDescriptor& strategy : Strategies()) {
    if (!strategy.dense_units) continue;
    ExpectRefused(naive, "\"" + std::string(strategy.name) + "\"");
  }
}

// Shards of a node's sum meet the same shards of other nodes: all nodes need as many ranks.
TEST(CheckTopology, RefusesRaggedNodesWhereRanksMeetTheirLike) {
  for (const std::string strategy :
       {"behind", "node-shards", "node-tensors", "owned-parts", "espresso"}) {
    const bool shards = strategy != "behind" && strategy != "owned-parts";
    const Composition made = Compose(InSteps(strategy));
    for (const Topology& topology : {Topology{4, 2}, Topology{6, 3}, Topology{4, 4}}) {
      EXPECT_NO_THROW(CheckTopology(made, topology)) << strategy;
    }
    for (const Topology& topology :
         {Topology{3, 2}, Topology{5, 4}, Topology{7, 4}, Topology{1, 2}}) {
      SCOPED_TRACE(strategy + " on " + std::to_string(topology.ranks));
      if (!shards) {
        EXPECT_NO_THROW(CheckTopology(made, topology));
        continue;
      }
      testing::ExpectError(FailureKind::kConfig, {"needs equally many on every node"},
                           [&] { CheckTopology(made, topology); });
    }
  }
}

}  // namespace
}  // namespace sparfuse
