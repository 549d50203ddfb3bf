// Tests a comparison's statements about the systems themselves, before any ratio.
#include <gtest/gtest.h>

#include "harness/compare/differences.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Fingerprint Of(double gbps, double top_k_seconds = 0.003) {
  const auto quantity = [](double value) {
    return FingerprintValue{value, value, value, 15, "", {}};
  };
  Fingerprint fingerprint;
  fingerprint.ranks = 4;
  fingerprint.quantities = {{"inter_node_bandwidth", quantity(gbps)},
                            {"top_k", quantity(top_k_seconds)}};
  return fingerprint;
}

// The trials of a side, each with the fingerprint of its run's start.
SystemSide Side(const std::string& name,
                const std::vector<std::optional<Fingerprint>>& fingerprints) {
  SystemSide side{name, "machine " + name, {}, [](const TrialRow&) { return json(); }};
  for (const auto& each : fingerprints) {
    TrialRow& row = side.rows.emplace_back();
    json provenance = json::object();
    if (each) provenance["fingerprint"] = ToJson(*each);
    row.provenance = provenance;
  }
  return side;
}

TEST(Fingerprints, OfASideAreItsNewestTrialsThatHasOne) {
  EXPECT_EQ(FingerprintOf(Side("a", {Of(1), Of(2), std::nullopt})), Of(2));
  EXPECT_FALSE(FingerprintOf(Side("a", {std::nullopt})));
}

TEST(Fingerprints, NameAReplacedCardFirstThenTheSlowLink) {
  const std::vector<SystemSide> sides = {Side("a", {Of(10.2)}), Side("b", {Of(5.1, 0.0057)})};
  const std::vector<FactDifference> differences = {
      {"software.nccl", {"2.20", "2.21"}, false},
      {"system.gpus", {"NVIDIA H100", "NVIDIA A100"}, false}};
  EXPECT_EQ(WhatDiffersInHardware(sides, differences),
            (Words{"cards of b: NVIDIA A100; of a: NVIDIA H100",
                   "b's bandwidth between nodes is half of a's (5.1 Gbit/s against 10.2 Gbit/s)",
                   "b's top-k selection takes 1.9 times as long as a's (5.7 ms against 3 ms)"}));
  const auto facts = FingerprintFacts(sides);
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].name, "fingerprint: bandwidth between nodes");
  EXPECT_EQ(facts[0].values, (Words{"10.2 Gbit/s", "5.1 Gbit/s"}));
}

TEST(Fingerprints, OfARenamedSystemSayNothing) {
  const std::vector<SystemSide> sides = {Side("a", {Of(10)}), Side("renamed", {Of(10)})};
  EXPECT_EQ(WhatDiffersInHardware(sides, {}), Words());
  EXPECT_TRUE(FingerprintFacts(sides).empty());
}

TEST(Fingerprints, ThatChangedDuringARunAreNamedFirst) {
  Fingerprint changed = Of(10);
  changed.changed = {"the end's bandwidth is half of the beginning's"};
  const std::vector<SystemSide> sides = {Side("a", {Of(10)}),
                                         Side("b", {changed, changed, Of(10)})};
  EXPECT_EQ(WhatDiffersInHardware(sides, {}),
            Words{"b changed during a run: the end's bandwidth is half of the beginning's"});
}

TEST(Fingerprints, ThatAreMissingAreNamedOnlyWhereThereIsOne) {
  EXPECT_EQ(WhatDiffersInHardware({Side("a", {std::nullopt}), Side("b", {std::nullopt})}, {}),
            Words());
  EXPECT_EQ(WhatDiffersInHardware({Side("a", {Of(10)}), Side("b", {std::nullopt})}, {}),
            Words{"b has no fingerprint: `sparfuse run --fingerprint` takes it"});
}

}  // namespace
}  // namespace sparfuse::harness
