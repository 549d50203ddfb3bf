// Tests which stored trials a plan counts, and its notes on comparisons that show nothing.
#include "harness/run/plan/trial_plan.hpp"

#include <gtest/gtest.h>

#include "core/coding/quantizers/quantizer.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "harness/run/plan/plan_checks.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

Experiment Parse(const std::string& lines, const Catalog& catalog = SmallCatalog()) {
  return ParseExperiment(
      TomlFile::Parse(
          "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n" + lines,
          "file.toml"),
      catalog, "/nonexistent");
}

Node NodeOf(const std::string& processor, int cores = 8) {
  Node node;
  node.processor = processor;
  node.cores = cores;
  return node;
}

// Stored modelled trials count on: a key that came later and is not said is in no hash.
TEST(ModelledSystem, IsWhatItWasBeforeCellsHadBuffers) {
  ProfileOutcome outcome;
  outcome.declared = true;
  outcome.config.cluster = "mine";
  json before = ToJson(ProfileOutcomes{outcome});
  ASSERT_EQ(before[0]["config"].erase("broadcast_bytes"), 1U);
  const auto hash = [&] { return ModelledSystem(outcome.config, {outcome}, {}).profile_hash; };
  EXPECT_EQ(hash(), ContentHash(before));
  outcome.config.broadcast_bytes = 516;
  EXPECT_NE(hash(), ContentHash(before));
}

class Plan : public ::testing::Test {
 protected:
  TrialPlan Make() const { return PlanLive(context_, {experiment_}, rows_); }

  TemporaryFolder folder_;
  Store store_{folder_.path()};
  Catalog catalog_ = SmallCatalog();
  PlanContext context_{catalog_, store_, {.machine = NodeOf("here", 2)}};
  Experiment experiment_ = Parse("workers = 2\nmethod = \"wfbp\"\nsparsifier = \"dgc\"\n");
  std::vector<TrialRow> rows_;

  TrialRow RowOfTheCell() const {
    const Cell& cell = experiment_.parts[0].cells.at(0);
    TrialRow row;
    row.config = cell.json;
    row.config_hash = cell.config_hash;
    row.system = ToJson(context_.machine);
    row.system_hash = ContentHash(row.system);
    row.revisions = nlohmann::json(RevisionsOf(catalog_, cell.config));
    row.provenance = {{"sources", SourcesOf(cell.config)}};
    row.status = "ok";
    return row;
  }
};

// Trials of the cell over hosts. Trials stored before nodes were recorded have this machine's
// system.
TEST_F(Plan, WhatRanHereOrOnOtherNodesIsNotPresentOnTheseHosts) {
  experiment_ = Parse("workers = 2\nranks_per_node = 1\nmethod = \"wfbp\"\nsparsifier = \"dgc\"\n");
  context_.hosts = {true, {NodeOf("a"), NodeOf("a"), NodeOf("b")}};
  TrialRow local = RowOfTheCell(), older = RowOfTheCell(), elsewhere = RowOfTheCell();
  local.provenance["machine"] = {{"placement", json::array({"h", "h"})}};
  older.provenance["machine"] = {{"placement", json::array({"n1", "n2"})}};
  elsewhere.provenance["machine"] = older.provenance["machine"];
  elsewhere.system = ToJson(SystemOfNodes(std::vector{NodeOf("c")}));
  elsewhere.system_hash = ContentHash(elsewhere.system);
  rows_ = {local, older, elsewhere};
  TrialPlan plan = Make();
  ASSERT_EQ(plan.trials.size(), 1u);
  // The first two hosts.
  EXPECT_EQ(plan.trials[0].system, SystemOfNodes(std::vector{NodeOf("a")}));
  EXPECT_EQ(plan.trials[0].hosts, 2);
  TrialRow there = elsewhere;
  there.system = ToJson(plan.trials[0].system);
  there.system_hash = ContentHash(there.system);
  rows_.push_back(there);
  EXPECT_EQ(Make().present, 1u);
  // On this machine, only the local trial counts.
  context_.hosts = {};
  EXPECT_EQ(Make().present, 1u);
  rows_ = {older, elsewhere, there};
  plan = Make();
  EXPECT_EQ(plan.present, 0u);
  ASSERT_EQ(plan.trials.size(), 1u);
  EXPECT_EQ(plan.trials[0].why, "hosts differ: 2 -> 1");
}

// The dense trial of block 0 ran on two hosts of one kind; the third host is of another.
TEST_F(Plan, AMethodThatJoinsOpensABlockWhereItsReferenceRanOnSomeOfTheHosts) {
  experiment_ = Parse(
      "workers = 2\nranks_per_node = 1\n"
      "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n");
  context_.hosts = {true, {NodeOf("a"), NodeOf("a"), NodeOf("b")}};
  std::vector<Experiment> experiments = {experiment_};
  std::vector<Cell>& cells = experiments[0].parts[0].cells;
  ASSERT_EQ(cells.size(), 2u);
  cells[1].joined = true;
  OpenBlocks(context_, rows_, experiments);
  EXPECT_EQ(cells[1].first_blocks, std::vector{0});
  TrialRow dense = RowOfTheCell();
  dense.system = ToJson(SystemOfNodes(std::vector{NodeOf("a")}));
  dense.system_hash = ContentHash(dense.system);
  OpenBlocks(context_, {dense}, experiments);
  EXPECT_EQ(cells[1].first_blocks, std::vector{experiments[0].parts[0].blocks});
}

TEST_F(Plan, OfHostsThatDidNotTellASystemIsTheMachines) {
  experiment_ = Parse("workers = 2\nranks_per_node = 1\nmethod = \"wfbp\"\nsparsifier = \"dgc\"\n");
  context_.hosts.across = true;
  TrialRow older = RowOfTheCell();
  older.provenance["machine"] = {{"placement", json::array({"n1", "n2"})}};
  rows_ = {older};
  EXPECT_EQ(Make().present, 1u);
}

TEST(Controls, APartThatMeasuresWithoutAReferenceIsToldWhichLineItLacks) {
  const auto of = [](const std::string& lines) {
    return MissingControls(Parse("sparsifier = \"topk\"\nworkers = 2\n" + lines));
  };
  const auto warnings = of("[[axis]]\nmethod = [\"wfbp\", \"syncea\"]\n");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_SAYS(warnings[0], R"(method = ["dense","wfbp","syncea"])");
  EXPECT_TRUE(of("[[part]]\nid = \"p\"\nreference = \"wfbp\"\n[[part.axis]]\n"
                 "method = [\"wfbp\", \"syncea\"]\n")
                  .empty());
  EXPECT_TRUE(
      MissingControls(Parse("workers = 2\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n")).empty());
  EXPECT_TRUE(
      MissingControls(Parse("workers = 1\nmethod = \"wfbp\"\nsparsifier = \"topk\"\n")).empty());
}

TEST_F(Plan, ATrialOfTheSameSourcesCountsWithoutAWord) {
  EXPECT_EQ(Make().trials.size(), 1u);
  rows_ = {RowOfTheCell()};
  const TrialPlan plan = Make();
  EXPECT_EQ(plan.present, 1u);
  EXPECT_TRUE(plan.trials.empty());
  EXPECT_TRUE(ProblemsOf(plan).empty());
}

TEST_F(Plan, ADisturbedTrialIsThereUntilItIsAskedForAgain) {
  rows_ = {RowOfTheCell()};
  rows_[0].quiet = {{"disturbed", true}, {"why", "other work"}};
  TrialPlan plan = Make();
  EXPECT_EQ(plan.present, 1u);
  EXPECT_EQ(plan.disturbed, 1u);
  context_.retry_disturbed = true;
  plan = Make();
  ASSERT_EQ(plan.trials.size(), 1u);
  EXPECT_EQ(plan.trials[0].why, "disturbed: other work");
  rows_.push_back(RowOfTheCell());  // the same, undisturbed
  plan = Make();
  EXPECT_EQ(plan.present, 1u);
  EXPECT_EQ(plan.disturbed, 0u);
}

TEST_F(Plan, OtherSourcesOfAPartAreNamedAndTheTrialCounts) {
  rows_ = {RowOfTheCell()};
  rows_[0].provenance["sources"]["sparsifier:dgc"] = "another";
  const TrialPlan plan = Make();
  EXPECT_EQ(plan.present, 1u);
  ASSERT_EQ(ProblemsOf(plan).size(), 1u);
  EXPECT_SAYS(ProblemsOf(plan)[0],
              "1 trial(s) of the store count although they were made with "
              "other sources of sparsifier:dgc");
}

// Ratios are within a block of one store: another store's trial cannot complete a block begun here.
TEST_F(Plan, ABlockOfAnotherStoreCountsWhereItIsWhole) {
  experiment_ = Parse("workers = 2\n[[axis]]\nmethod = [\"wfbp\", \"dense\"]\n");
  const auto row = [&](std::size_t cell, const std::string& store) {
    TrialRow made = RowOfTheCell();
    const Cell& of = experiment_.parts[0].cells.at(cell);
    made.config = of.json;
    made.config_hash = of.config_hash;
    made.revisions = nlohmann::json(RevisionsOf(catalog_, of.config));
    made.provenance = {{"sources", SourcesOf(of.config)}};
    made.store = store;
    return made;
  };
  rows_ = {row(0, "other"), row(1, "other")};
  EXPECT_EQ(Make().present, 2u);
  rows_ = {row(0, "other"), row(1, "another")};
  EXPECT_EQ(Make().trials.size(), 2u);
  rows_ = {row(0, ""), row(0, "other"), row(1, "other")};
  const TrialPlan plan = Make();
  EXPECT_EQ(plan.present, 1u);
  ASSERT_EQ(plan.trials.size(), 1u);
  EXPECT_EQ(plan.trials[0].why,
            "its block comes from another results folder, which lacks part of it");
}

// Each part's folder has a file that contains its name.
TEST(PartSources, AreThoseOfTheFolderThatTheNameStandsIn) {
  const auto stands_in = [](const std::string& folder, std::string_view name) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    for (const auto& entry :
         std::filesystem::directory_iterator(testing::SourceDirectory() / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
      if (ReadFile(entry.path()).find(quoted) != std::string::npos) return true;
    }
    return false;
  };
  const Catalog catalog = BuiltInCatalog();
  const auto expect = [&](const char* kind, const auto& parts) {
    for (const auto& part : parts) {
      EXPECT_TRUE(stands_in(SourceFolderOf(kind, part.name), part.name))
          << SourceFolderOf(kind, part.name) << " has no \"" << part.name
          << "\": its folder wants to begin with the same word as the " << kind;
    }
  };
  expect("sparsifier", catalog.sparsifiers);
  expect("strategy", catalog.strategies);
  expect("planner", catalog.planners);
  const json sources =
      SourcesOf(Parse("workers = 2\nmethod = \"wfbp\"\n").parts[0].cells.at(0).config);
  for (const auto& [part, hash] : sources.items()) {
    EXPECT_EQ(hash.get<std::string>().size(), 12u) << part;
  }
}

TEST(PartSources, AndRevisionsAreOfTheQuantizerToo) {
  const CellConfig config =
      Parse("workers = 2\nmethod = \"qsgd\"\n", BuiltInCatalog()).parts[0].cells.at(0).config;
  EXPECT_EQ(SourcesOf(config)["quantizer:qsgd"].size(), 12u);
  EXPECT_EQ(RevisionsOf(BuiltInCatalog(), config)["quantizer:qsgd"],
            FindQuantizer("qsgd").revision);
}

TEST(VacuousComparisons, AReferenceOfOneExchangeOneWorkerAndMethodsThatAreTheSame) {
  const auto of = [](const std::string& lines) { return VacuousComparisons(Parse(lines)); };
  const std::string methods = "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n";
  const auto one = of("workers = 2\n" + methods);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_SAYS(one[0], "dense on digits-resnet sends all gradients");
  EXPECT_TRUE(of("workers = 2\nworkload_options = {}\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n"
                 "method_options = [{ threshold_bytes = 1e4 }, {}]\n")
                  .empty());
  EXPECT_TRUE(of("workers = 2\nmethod = \"dense\"\n").empty());  // nothing is compared
  const auto alone = of("workers = 1\n" + methods);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_SAYS(alone[0], "2 cell(s) have workers = 1");
}

}  // namespace
}  // namespace sparfuse::harness
