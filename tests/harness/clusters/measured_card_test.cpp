// Tests declared clusters whose cards were measured, with a profile that the project ships.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "tests/harness/clusters/declared.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;

// Only the card is uncertain.
constexpr const char* kFourMachines = R"(
title    = "Four machines"
source   = "test"
hardware = "EPYC"
nodes          = 4
ranks_per_node = 2
[input]
inter_node_gbps          = { value = 10, low = 10, high = 10, kind = "data sheet", source = "t" }
inter_node_us            = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
intra_node_gbps          = { value = 80, low = 80, high = 80, kind = "data sheet", source = "t" }
intra_node_us            = { value = 2, low = 2, high = 2, kind = "declared", source = "t" }
memory_gbytes_per_s      = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
kernel_us                = { value = 4, low = 4, high = 4, kind = "declared", source = "t" }
host_link_gbytes_per_s   = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
host_memory_gbytes_per_s = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
exchange_host_us         = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
update_host_us_a_tensor  = { value = 3, low = 3, high = 3, kind = "declared", source = "t" }
)";
constexpr const char* kCard = "card = \"epyc-2core\"\n";
constexpr const char* kCompute =
    "[[compute]]\nworkload = \"digits-resnet\"\nbatch_per_worker = 32\nforward_ms = 7\n"
    "backward_ms = 11\nkind = \"declared\"\nsource = \"t\"\n";

CellConfig Cell(const std::string& workload = "digits-resnet", int batch = 32) {
  CellConfig config;
  config.mode = Mode::kModelled;
  config.workload = workload;
  config.workload_options =
      ResolveOptions("workload", OptionsWithoutRecipe(workloads::FindWorkload(workload)), {});
  config.batch_per_worker = batch;
  config.workers = 8;
  config.ranks_per_node = 2;
  config.cluster = "c";
  config.method = "dense";
  config.method_options.strategy = "dense-units";
  config.method_options.planner = "whole-model";
  config.method_options.collective = "ring-allreduce";
  return config;
}

json OutcomeOf(const DeclaredCluster& cluster, const CellConfig& config) {
  return ToJson(DeclaredProfile(cluster, config).front());
}

json MeasuredProfile() { return ToJson(ReadCard(kProfiles, "epyc-2core").Of(Cell())->profile); }

TEST(MeasuredCard, ComputesAndSelectsAsMeasuredAndExchangesAsDeclared) {
  const json with = OutcomeOf(Parse(std::string(kCard) + kFourMachines), Cell());
  const json without = OutcomeOf(Parse(std::string(kFourMachines) + kCompute), Cell());
  const json measured = MeasuredProfile();
  const json& profile = with["profile"];
  const json& backward = profile["backward"];
  EXPECT_EQ(backward["forward_seconds"], measured["backward"]["forward_seconds"]);
  EXPECT_EQ(backward["tensors"], measured["backward"]["tensors"]);
  EXPECT_NEAR(backward["update_seconds"].get<double>(),
              measured["backward"]["update_seconds"].get<double>() +
                  3e-6 * static_cast<double>(backward["tensors"].size()),
              1e-12);
  for (const char* key : {"pack", "scale", "clear", "seconds_per_entry", "dispatch_seconds",
                          "seconds_per_reduced_element", "selection"}) {
    EXPECT_EQ(profile[key], measured[key]) << key;
  }
  // A quantizer added after the measurement encodes at the memory's rate.
  for (const auto& [name, curve] : measured["encode"].items())
    EXPECT_EQ(profile["encode"][name], curve) << name;
  const std::set<std::string> of_cards = {
      "backward",         "pack",      "scale",  "clear",           "seconds_per_entry",
      "dispatch_seconds", "selection", "encode", "collective_work", "seconds_per_reduced_element",
      "host_selection"};
  for (const auto& [key, value] : without["profile"].items()) {
    if (!of_cards.contains(key)) {
      EXPECT_EQ(profile.at(key), value) << key;
    }
  }
  // Its errors become ranges of draws.
  EXPECT_FALSE(profile.contains("relative_errors"));
  EXPECT_EQ(with["kind"], "declared, its card epyc-2core measured");
  const ProfileOutcomes of_card =
      DeclaredProfile(Parse(std::string(kCard) + kFourMachines), Cell());
  EXPECT_EQ(ModelledSystem(Cell(), of_card, {}).kind, with["kind"]);
  EXPECT_FALSE(without.contains("kind"));  // as before cards existed
}

TEST(MeasuredCard, WhatItWasNotMeasuredWithIsAnErrorUnlessTheFileHasIt) {
  const std::string lacks = ErrorOf(
      [&] { Parse(std::string(kCard) + kFourMachines).CheckWorkload(Cell("digits-resnet", 8)); });
  ExpectIn(
      "cluster \"c\": its card epyc-2core was not measured with digits-resnet with batch 8 and "
      "1 thread(s) a rank, and the file has no [[compute]] of it; `sparfuse profile "
      "digits-resnet --batch 8 --threads 1 --name epyc-2core --ranks 1` on such a card",
      lacks);
  // A rate for all workloads is not a measured time of this one.
  const std::string tflops =
      "compute_tflops = { value = 1, kind = \"declared\", source = \"t\" }\n";
  EXPECT_EQ(
      ErrorOf([&] {
        Parse(kCard + std::string(kFourMachines) + tflops).CheckWorkload(Cell("digits-resnet", 8));
      }),
      lacks);
  const DeclaredCluster both = Parse(std::string(kCard) + kFourMachines + kCompute);
  both.CheckWorkload(Cell("digits-resnet", 8));
  const json declared = OutcomeOf(both, Cell("digits-resnet", 8));
  EXPECT_NEAR(declared["profile"]["backward"]["forward_seconds"].get<double>(), 7e-3 / 4, 1e-12);
  EXPECT_EQ(declared["kind"], "declared, without its card epyc-2core");
  CellConfig sparse = Cell();
  sparse.sparsifier = "dgc";
  both.CheckSparsifier(sparse);
  sparse.sparsifier = "nonzeros";
  ExpectIn("nor was its card epyc-2core measured with it",
           ErrorOf([&] { both.CheckSparsifier(sparse); }));
  ExpectIn("c.toml:1: no measured profile nothing.json in",
           ErrorOf([&] { Parse("card = \"nothing\"\n" + std::string(kFourMachines)); }));
}

TEST(MeasuredCard, InputsOfACellScaleIt) {
  const DeclaredCluster cluster = Parse(std::string(kCard) + kFourMachines);
  const json as_measured = OutcomeOf(cluster, Cell())["profile"];
  CellConfig config = Cell();
  config.inputs = {{"compute", 2}, {"sparsify", 3}, {"kernel", 5}, {"memory", 4}};
  const json scaled = OutcomeOf(cluster, config)["profile"];
  const auto ratio = [&](const char* pointer) {
    const json::json_pointer at(pointer);
    return scaled.at(at).get<double>() / as_measured.at(at).get<double>();
  };
  EXPECT_NEAR(ratio("/backward/forward_seconds"), 2, 1e-9);
  EXPECT_NEAR(ratio("/backward/tensors/0/seconds"), 2, 1e-9);
  EXPECT_NEAR(ratio("/selection/dgc/0/seconds/1/1"), 3, 1e-9);
  EXPECT_NEAR(ratio("/pack/0/1"), 5, 1e-9);
  EXPECT_NEAR(ratio("/seconds_per_entry"), 1.0 / 4, 1e-9);
  const auto slope = [](const json& curve) {
    return curve.back()[1].get<double>() - curve.front()[1].get<double>();
  };
  EXPECT_NEAR(slope(scaled["pack"]) / slope(as_measured["pack"]), 1.0 / 4, 1e-9);
}

// Draws vary the card by its measurement errors, alike on every cluster that has it.
TEST(MeasuredCard, BandsAreWhatItsErrorsLeave) {
  const TemporaryFolder folder;
  WriteFileDurably(folder.path() / "one.toml", std::string(kCard) + kFourMachines);
  WriteFileDurably(folder.path() / "two.toml", std::string(kCard) + kFourMachines + "# another\n");
  const ProfileFolders profiles{folder.path(), kProfiles};
  const json measured = MeasuredProfile();
  const double error = measured["relative_errors"]["/backward/forward_seconds"];
  ASSERT_GT(error, 0);
  const auto forward = [&](const char* cluster, int draw) {
    return OutcomeOf(DrawnCluster(profiles, cluster, draw),
                     Cell())["profile"]["backward"]["forward_seconds"]
        .get<double>();
  };
  EXPECT_EQ(forward("one", 0), measured["backward"]["forward_seconds"]);
  double squares = 0;
  constexpr int kCount = 32;
  for (int draw = 1; draw <= kCount; ++draw) {
    EXPECT_EQ(forward("one", draw), forward("two", draw));
    squares += std::pow(forward("one", draw) / forward("one", 0) - 1, 2);
  }
  // The root mean square of 32 normal deviates is almost never below half its expectation.
  EXPECT_GT(std::sqrt(squares / kCount), error / 2);
  EXPECT_LT(std::sqrt(squares / kCount), 2 * error);

  const auto drawn = [&](int draw) {
    return DeclaredProfile(DrawnCluster(profiles, "one", draw), Cell());
  };
  const json outcome =
      ToJson(RunModelledTrial({Cell(), 1, 0, "t"}, drawn(0), drawn, folder.path()));
  const json& steps = outcome.at("draws").at("step_seconds");
  EXPECT_GT(std::set<double>(steps.begin(), steps.end()).size(), 16u);
  EXPECT_FALSE(outcome.at("metrics").contains("step_uncertainty"));  // one band, not two
  EXPECT_EQ(outcome.at("card").at("name"), "epyc-2core");
  EXPECT_TRUE(outcome.at("card").at("used"));
}

}  // namespace
}  // namespace sparfuse::harness
