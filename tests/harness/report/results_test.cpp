// Tests which trials count, which cells are compared, and the reported findings of an experiment.
#include "harness/report/results.hpp"

#include <gtest/gtest.h>

#include "harness/catalog/revisions.hpp"
#include "harness/files/canonical.hpp"
#include "harness/report/findings.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/store/origin.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

class Results : public ::testing::Test {
 protected:
  void Read(const std::string& text) {
    experiment_ = ParseExperiment(
        TomlFile::Parse(
            "id = \"t\"\n[defaults]\nworkload = \"digits-resnet\"\nworkers = 2\n" + text, "t.toml"),
        catalog_, "/nonexistent");
    parts_ = PartsWithTwins(experiment_);
  }

  // Adds a trial of a cell that counts, the newest so far.
  TrialRow& Add(std::size_t part, std::size_t cell, int block, double throughput) {
    TrialRow row;
    row.trial_id = "t/" + std::to_string(rows_.size());
    row.config = parts_.at(part).cells.at(cell).json;
    row.config_hash = parts_[part].cells[cell].config_hash;
    row.revisions = nlohmann::json(RevisionsOf(catalog_, parts_[part].cells[cell].config));
    row.system_hash = "here";
    row.status = "ok";
    row.block = block;
    row.metrics = {{"throughput", throughput}};
    rows_.push_back(row);
    return rows_.back();
  }

  std::vector<PartResult> Found(DisturbedTrials disturbed = DisturbedTrials::kApart) const {
    return ResultsOf(parts_, catalog_, rows_, "here", disturbed);
  }

  // Adds a disturbed trial: other work took this share of the cores.
  void AddDisturbed(std::size_t cell, int block, double throughput, double other_cpu = 0.2) {
    TrialRow& row = Add(0, cell, block, throughput);
    row.metrics.Set("sent_bytes", 8);
    row.quiet = {
        {"disturbed", true}, {"why", "other work"}, {"causes", {{"other_cpu", other_cpu}}}};
  }

  // The cell of `method` that a cell of part 0 is compared with.
  std::optional<std::size_t> Counterpart(std::size_t cell, const std::string& method) const {
    return Found()[0].CounterpartOf(cell, method);
  }

  Catalog catalog_ = SmallCatalog();
  Experiment experiment_;
  std::vector<Part> parts_;
  std::vector<TrialRow> rows_;
};

constexpr const char* kLive = "mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n";

TEST_F(Results, BlocksOfAMergedStoreStandBesideOnesOwn) {
  Read(kLive);
  Add(0, 0, 0, 100);
  Add(0, 1, 0, 150);
  Add(0, 0, 0, 200).origin = "other";
  Add(0, 1, 0, 320).origin = "other";
  Add(0, 1, 1, 330).origin = "other";  // its dense did not run
  TellStoresApart(rows_, "");
  const auto results = Found();
  EXPECT_EQ(results[0].cells[0].trials.size(), 2u);
  EXPECT_EQ(OfBlocks(RatiosByBlock(results[0].cells[1], results[0].cells[0], "throughput")),
            (std::vector<double>{1.5, 1.6}));
}

TEST_F(Results, TheNewestTrialOfABlockCountsAndWhatFailedIsSetAside) {
  Read(kLive);
  for (const double value : {1.0, 2.0, 3.0}) Add(0, 0, 0, value);
  Add(0, 0, 1, 7);
  Add(0, 0, 1, 8).status = "failed";
  Add(0, 0, 1, 9).annotations = {"fan"};
  const CellResult cell = Found()[0].cells[0];
  EXPECT_EQ(cell.Values("throughput"), (std::map<int, double>{{0, 3}, {1, 7}}));
  EXPECT_EQ(cell.failure, "");
  ASSERT_EQ(cell.set_aside.size(), 2u);
  EXPECT_EQ(FailureOf(*cell.set_aside[1]), "called bad");
}

// By hand: the rounds' ratios are 2 and 8, and their geometric mean is 4; the trials' medians give
// 0.3 / 0.1.
TEST_F(Results, TrialsThatTookTurnsAreComparedRoundByRound) {
  Read(kLive);
  const auto add = [&](std::size_t cell, int block, double seconds, const char* launch,
                       const std::vector<double>& rounds) {
    TrialRow& row = Add(0, cell, block, 12 / seconds);
    row.metrics.Set("step_seconds", seconds);
    row.metrics.Set("payload_bytes", seconds);
    row.launch = {.id = launch, .trials = 2, .rounds = rounds};
  };
  add(0, 0, 0.1, "one", {0.1, 0.1});
  add(1, 0, 0.3, "one", {0.2, 0.8});
  add(0, 1, 0.1, "two", {0.1, 0.1, 0.1});  // continued alone
  add(1, 1, 0.3, "two", {0.4, 0.4});
  const PartResult found = Found()[0];
  const CellResult& dense = found.cells[0];
  const CellResult& wfbp = found.cells[1];
  const auto steps = RatiosByBlock(wfbp, dense, "step_seconds");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_NEAR(steps.at(0), 4, 1e-12);
  EXPECT_NEAR(steps.at(1), 4, 1e-12);
  EXPECT_NEAR(RatiosByBlock(wfbp, dense, "throughput").at(0), 0.25, 1e-12);
  EXPECT_NEAR(RatiosByBlock(wfbp, dense, "payload_bytes").at(0), 3, 1e-12);
  EXPECT_EQ(RatioOf(wfbp, dense, "step_seconds")->n, 2u);  // blocks, not rounds
  EXPECT_EQ(BlocksInTurn(wfbp, dense), 2u);
  rows_[1].launch.id = "another";
  EXPECT_NEAR(RatiosByBlock(Found()[0].cells[1], Found()[0].cells[0], "step_seconds").at(0), 3,
              1e-12);
  EXPECT_EQ(BlocksInTurn(Found()[0].cells[1], Found()[0].cells[0]), 1u);
}

TEST_F(Results, ACellWithoutATrialSaysWhy) {
  Read(kLive);
  TrialRow& row = Add(0, 0, 0, 1);
  row.status = "invalid";
  row.failed_checks = {"replicas_equal"};
  Add(0, 1, 0, 1).revisions["method:wfbp"] = 99;
  const PartResult found = Found()[0];
  EXPECT_EQ(found.cells[0].failure, "invalid (replicas_equal)");
  EXPECT_TRUE(found.cells[0].invalid);
  EXPECT_EQ(found.cells[1].failure, "stale");
  EXPECT_EQ(found.older_revisions, 1u);
}

TEST_F(Results, AllPartsShowOneMachine) {
  Read(
      "[[part]]\nid = \"live\"\n[part.defaults]\nmode = \"measured\"\nmethod = \"dense\"\n"
      "[[part]]\nid = \"computed\"\n[part.defaults]\nmode = \"modelled\"\nmethod = \"dense\"\n"
      "cluster = \"this-machine\"\n");
  const nlohmann::json elsewhere = {
      {"cpu_model", "another"}, {"cores", 2}, {"memory_gib", 4}, {"gpus", nlohmann::json::array()}};
  Add(0, 0, 0, 1).system_hash = ContentHash(elsewhere);
  TrialRow& computed = Add(1, 0, 0, 2);
  computed.system = {{"cluster", "this-machine"}, {"machine", elsewhere}};
  computed.system_hash = "profile";
  auto found = Found();  // no trial is of this machine: the newest trial's
  EXPECT_EQ(found[0].cells[0].trials.size(), 1u);
  EXPECT_EQ(found[1].cells[0].trials.size(), 1u);
  Add(0, 0, 0, 3);
  found = Found();
  EXPECT_EQ(*found[0].cells[0].Mean("throughput"), 3);
  EXPECT_EQ(found[1].cells[0].failure, "not run");
  EXPECT_EQ(found[0].other_systems + found[1].other_systems, 2u);
}

TEST_F(Results, OfAModelTheNewestProfileCounts) {
  Read("mode = \"modelled\"\nmethod = \"dense\"\ncluster = \"this-machine\"\n");
  for (const char* profile : {"old", "old", "new"}) {
    TrialRow& row = Add(0, 0, static_cast<int>(rows_.size()), 5);
    row.system = {{"cluster", "this-machine"}};
    row.system_hash = profile;
  }
  const PartResult found = Found()[0];
  EXPECT_EQ(found.cells[0].trials.size(), 1u);
  EXPECT_EQ(found.older_profiles, 2u);
}

TEST_F(Results, ADenseReferenceServesEveryDensity) {
  Read(
      "mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n"
      "[[axis]]\ndensity = [0.01, 0.001]\n");
  // dense; wfbp at both densities; syncea at both
  const auto& cells = parts_[0].cells;
  ASSERT_EQ(cells.size(), 5u);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto dense = Counterpart(i, "dense");
    ASSERT_TRUE(dense.has_value());
    EXPECT_EQ(cells[*dense].json["method"], "dense");
    const auto wfbp = Counterpart(i, "wfbp");
    if (cells[i].json["method"] == "dense") {
      EXPECT_FALSE(wfbp.has_value());  // there are two such cells
    } else {
      ASSERT_TRUE(wfbp.has_value());
      EXPECT_EQ(cells[*wfbp].json["density"], cells[i].json["density"]);
    }
  }
}

TEST_F(Results, ASparsifierThatNoOtherCellHasIsComparedWithTheOnlyOneOfItsDensity) {
  const std::string axis = "mode = \"measured\"\n[[axis]]\n";
  Read(axis + "method = [\"wfbp\", \"syncea\"]\nsparsifier = [\"topk\", \"dgc\"]\n");
  EXPECT_EQ(Counterpart(1, "wfbp"), 0u);
  EXPECT_EQ(Counterpart(0, "syncea"), 1u);
  Read(axis +
       "method = [\"wfbp\", \"wfbp\", \"syncea\"]\n"
       "sparsifier = [\"topk\", \"redsync\", \"dgc\"]\n");
  EXPECT_EQ(Counterpart(2, "wfbp"), std::nullopt);
  Read(axis +
       "method = [\"wfbp\", \"syncea\"]\nsparsifier = [\"topk\", \"dgc\"]\n"
       "density = [0.01, 0.1]\n");
  EXPECT_EQ(Counterpart(1, "wfbp"), std::nullopt);
}

TEST_F(Results, ADenseCellIsComparedWithTheOnlySparseOneOfItsSetting) {
  Read(
      "mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n[[axis]]\n"
      "batch_per_worker = [8, 16]\n");
  const auto& cells = parts_[0].cells;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto other = Counterpart(i, "wfbp");
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(cells[*other].json["batch_per_worker"], cells[i].json["batch_per_worker"]);
  }
}

using Values = std::map<int, double>;

TEST_F(Results, AnUndisturbedTrialStandsForItsBlockWhicheverIsNewer) {
  Read(kLive);
  Add(0, 0, 0, 1);
  AddDisturbed(0, 0, 2);
  AddDisturbed(0, 1, 3);
  Add(0, 0, 1, 4);
  AddDisturbed(0, 2, 5);
  AddDisturbed(0, 2, 6);
  const CellResult cell = Found()[0].cells[0];
  EXPECT_EQ(cell.Values("throughput"), (Values{{0, 1}, {1, 4}}));
  EXPECT_EQ(cell.ValuesApart("throughput"), (Values{{2, 6}}));
  EXPECT_EQ(cell.disturbed, std::set<int>{2});
  EXPECT_EQ(cell.blocks(), 2u);
  EXPECT_FALSE(cell.OnlyDisturbed());
  EXPECT_EQ(cell.Values("sent_bytes"), (Values{{2, 8}}));  // counts are not disturbed
  const CellResult kept = Found(DisturbedTrials::kCount)[0].cells[0];
  EXPECT_EQ(kept.Values("throughput"), (Values{{0, 1}, {1, 4}, {2, 6}}));
  EXPECT_TRUE(kept.ValuesApart("throughput").empty());
}

TEST_F(Results, NoVerdictLeansOnDisturbedTimes) {
  Read(std::string(kLive) +
       "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"wfbp\" }\n"
       "over = { method = \"dense\" }\nexpect = \"more\"\n"
       "[[claim]]\nquote = \"b\"\nmetric = \"sent_bytes\"\nof = { method = \"wfbp\" }\n"
       "equals = 8\n");
  parts_[0].reference = "dense";
  for (const int block : {0, 1}) {
    Add(0, 0, block, 100 + block);
    AddDisturbed(1, block, 200 + block);
  }
  auto judged = JudgeClaims(Found()[0]);
  EXPECT_EQ(judged[0].verdict, Verdict::kDisturbed);
  EXPECT_TRUE(judged[0].fails_strict());
  EXPECT_EQ(judged[1].verdict, Verdict::kHolds);
  EXPECT_TRUE(Found()[0].cells[1].OnlyDisturbed());
  EXPECT_TRUE(HeadlinesOf(experiment_, Found()).empty());
  EXPECT_EQ(JudgeClaims(Found(DisturbedTrials::kCount)[0])[0].verdict, Verdict::kHolds);
  rows_.clear();
  EXPECT_EQ(JudgeClaims(Found()[0])[0].verdict, Verdict::kNotRun);
}

constexpr const char* kToTarget =
    "mode = \"measured\"\nkind = \"convergence\"\ntarget = 0.9\n[[axis]]\n"
    "method = [\"dense\", \"wfbp\"]\n"
    "[[claim]]\nquote = \"q\"\nmetric = \"steps_to_target\"\nof = { method = \"wfbp\" }\n"
    "over = { method = \"dense\" }\nexpect = \"less\"\n";

// A method that trains without reaching its target has run: its claims are neither "not run" nor
// decided. They are "not run" while one of the cells has no trial.
TEST_F(Results, AClaimOnATargetThatNoTrialReachedSaysSo) {
  Read(kToTarget);
  for (const int block : {0, 1}) Add(0, 0, block, 1).metrics.Set("steps_to_target", 100 + block);
  EXPECT_EQ(JudgeClaims(Found()[0]).at(0).verdict, Verdict::kNotRun);
  for (const int block : {0, 1}) Add(0, 1, block, 1);
  EXPECT_TRUE(Found()[0].cells[1].MissedTarget("steps_to_target"));
  EXPECT_FALSE(Found()[0].cells[1].MissedTarget("throughput"));
  EXPECT_FALSE(Found()[0].cells[0].MissedTarget("steps_to_target"));
  const ClaimResult judged = JudgeClaims(Found()[0]).at(0);
  EXPECT_EQ(judged.verdict, Verdict::kTargetNotReached);
  EXPECT_EQ(VerdictName(judged.verdict), "target not reached");
  EXPECT_TRUE(judged.fails_strict());
  const std::string table = Render(ResultTable(Found()[0], catalog_), TableFormat::kMarkdown);
  EXPECT_NE(table.find("| target not reached (0 of 2) | target not reached |"), std::string::npos)
      << table;
  for (const int block : {0, 1}) Add(0, 1, block, 1).metrics.Set("steps_to_target", 50 + block);
  EXPECT_EQ(JudgeClaims(Found()[0]).at(0).verdict, Verdict::kHolds);
  // A trial that reached it need not have every such metric.
  EXPECT_FALSE(Found()[0].cells[1].MissedTarget("sent_bytes_to_target"));
}

TEST_F(Results, TheHeadSaysHowManyTrialsWereDisturbedAndByWhat) {
  Read(kLive);
  EXPECT_EQ(DisturbedWarning(Found()), "");
  Add(0, 0, 0, 1);
  AddDisturbed(0, 0, 1);  // another trial stands for the block
  EXPECT_EQ(DisturbedWarning(Found()), "");
  for (const int block : {1, 2, 3}) AddDisturbed(0, block, 1, 0.1 * block);
  EXPECT_EQ(DisturbedWarning(Found()),
            "3 of 4 live trials were disturbed: other work took 20 % of the cores (median of 3). "
            "Their times do not count; `sparfuse run --retry-disturbed` runs them again");
  EXPECT_EQ(DisturbedWarning(Found(DisturbedTrials::kCount)),
            "3 of 4 live trials were disturbed: other work took 20 % of the cores (median of 3). "
            "Their times count all the same (--keep-disturbed)");
}

TEST_F(Results, HeadlinesAreAboutWhatClaimsCompare) {
  Read(
      "mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n"
      "[[axis]]\nbatch_per_worker = [8, 16]\n"
      "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"wfbp\" }\n"
      "over = { method = \"syncea\" }\nfor_each = [\"batch_per_worker\"]\nexpect = \"more\"\n");
  for (std::size_t i = 0; i < parts_[0].cells.size(); ++i) {
    const auto& config = parts_[0].cells[i].config;
    const double factor = config.method == "wfbp" ? config.batch_per_worker == 8 ? 2 : 3 : 1;
    for (int block = 0; block < 3; ++block) Add(0, i, block, factor * (100 + block));
  }
  const auto headlines = HeadlinesOf(experiment_, Found());
  ASSERT_EQ(headlines.size(), 1u);
  EXPECT_EQ(headlines[0].settings, 2u);
  EXPECT_NEAR(headlines[0].best.value, 3, 1e-12);
  EXPECT_NEAR(headlines[0].least, 2, 1e-12);
  EXPECT_EQ(headlines[0].sentence,
            "wfbp: 2.00x to 3.00x the throughput of syncea in 2 settings, 3.00x [3.00, 3.00] at "
            "best (digits-resnet, 2 workers, topk at density 0.01; measured, 3 blocks, "
            "preliminary).");
}

TEST_F(Results, WithoutClaimsTheBestOrThePapersOwnMethodStandsAgainstTheReference) {
  Read("mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n");
  parts_[0].reference = "dense";
  EXPECT_TRUE(HeadlinesOf(experiment_, Found()).empty());
  Add(0, 0, 0, 100);
  Add(0, 1, 0, 150);
  Add(0, 2, 0, 120);
  EXPECT_EQ(HeadlinesOf(experiment_, Found()).at(0).method, "wfbp");
  experiment_.paper = "syncea";
  const Headline own = HeadlinesOf(experiment_, Found()).at(0);
  EXPECT_EQ(own.method, "syncea");
  EXPECT_EQ(own.sentence,
            "syncea: 1.20x the throughput of dense (digits-resnet, 2 workers, topk at density "
            "0.01; measured, 1 block, preliminary).");
}

}  // namespace
}  // namespace sparfuse::harness
