// Tests which cells `sparfuse explain` compares, and its errors.
#include <gtest/gtest.h>

#include "harness/records/private_facts.hpp"
#include "harness/report/explanation.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

// Parts "live" (with twins) and "other": two methods, two links each.
class ExplainCommand : public ::testing::Test {
 protected:
  ExplainCommand() {
    const Experiment experiment = ParseExperiment(TomlFile::Parse(R"(
id = "t"
[defaults]
workload = "digits-resnet"
mode = "emulated"
[[part]]
id = "live"
[part.defaults]
workers = 2
[part.repeat]
predict = true
[[part.axis]]
link = [{ gbps = 1, alpha_us = 100 }, { gbps = 10, alpha_us = 100 }]
[[part.axis]]
method = ["dense", "wfbp"]
[[part]]
id = "other"
[part.defaults]
workers = 4
link = { gbps = 1, alpha_us = 100 }
[[part.axis]]
method = ["dense", "wfbp"]
)",
                                                                  "t.toml"),
                                                  SmallCatalog(), "/nonexistent");
    parts_ = PartsWithTwins(experiment);
    for (const Part& part : parts_) {
      PartResult result;
      result.part = &part;
      for (const Cell& cell : part.cells) {
        CellResult entry;
        entry.cell = &cell;
        entry.trials[0] = &row_;
        result.cells.push_back(entry);
      }
      results_.push_back(std::move(result));
    }
  }

  ExplainedCells Choose(const std::string& of, const std::string& over,
                        const std::string& part = "") {
    return ChooseExplained(parts_, results_, rows_, {"t", part, of, over, results_folder_});
  }
  std::string ErrorOf(const std::string& of, const std::string& over,
                      const std::string& part = "") {
    try {
      Choose(of, over, part);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kConfig);
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path results_folder_;
  std::vector<Part> parts_;
  TrialRow row_;
  std::vector<TrialRow> rows_;
  std::vector<PartResult> results_;
};

TEST_F(ExplainCommand, KeysAndPathsIntoTablesLeaveOneCellEach) {
  const auto chosen =
      Choose("method=wfbp,workers=2,link.gbps=10", "method=dense,workers=4,workload=digits-resnet");
  EXPECT_EQ(chosen.of->cell->json["method"], "wfbp");
  EXPECT_EQ(chosen.of->cell->json["link"]["gbps"], 10);
  EXPECT_EQ(chosen.over->cell->json["workers"], 4);
  EXPECT_EQ(chosen.of->cell->json["mode"], "emulated");  // not the modelled twin
}

TEST_F(ExplainCommand, TwinsAreLookedAtWhereTheModeAsksForThem) {
  const auto chosen =
      Choose("method=wfbp,link.gbps=10", "method=wfbp,link.gbps=10,mode=modelled", "live");
  EXPECT_EQ(chosen.over->cell->json["mode"], "modelled");
  EXPECT_EQ(chosen.of->cell->json["mode"], "emulated");
}

TEST_F(ExplainCommand, WhatLeavesSeveralNamesTheKeysAndCompletesTheCommand) {
  const std::string error = ErrorOf("method=wfbp,link.gbps=10", "method=dense,workers=2");
  EXPECT_SAYS(error, "--over leaves 2 cells; keys that tell them apart:\n  link.gbps: 1, 10");
  EXPECT_SAYS(error,
              "for example: sparfuse explain t --of method=wfbp,link.gbps=10 "
              "--over method=dense,workers=2,link.gbps=10");
}

TEST_F(ExplainCommand, TheCommandOfferedTakesCellsThatHaveResults) {
  for (CellResult& cell : results_[0].cells) {
    if (cell.cell->json["link"]["gbps"] == 1) cell.trials.clear();
  }
  EXPECT_SAYS(ErrorOf("method=wfbp", "method=dense", "live"),
              "--of method=wfbp,link.gbps=10 --over method=dense,link.gbps=10 --part live");
}

TEST_F(ExplainCommand, WhatIsMisspeltHasANearestName) {
  EXPECT_SAYS(ErrorOf("methd=wfbp", "method=dense"),
              "--of: unknown key \"methd\"; did you mean \"method\"?");
  EXPECT_SAYS(ErrorOf("link.gps=1", ""), "unknown key \"link.gps\"; did you mean \"link.gbps\"?");
  EXPECT_SAYS(ErrorOf("method=wfbpp", ""),
              "--of method=wfbpp: no cell has it: expected one of dense, wfbp; did you mean "
              "\"wfbp\"?");
  EXPECT_SAYS(ErrorOf("workers=4,link.gbps=10", ""),
              "--of link.gbps=10: no cell with workers=4 has it: expected one of 1");
  EXPECT_SAYS(ErrorOf("", "", "lve"), "unknown part \"lve\" of t; did you mean \"live\"?");
  EXPECT_SAYS(ErrorOf("method", ""), "--of \"method\": expected key=value pairs");
}

TEST_F(ExplainCommand, TheSameCellTwiceIsRefused) {
  EXPECT_SAYS(ErrorOf("method=wfbp,workers=4", "method=wfbp,workers=4"), "are the same cell");
}

TEST_F(ExplainCommand, ACellWithoutResultSaysWhyAndWhatRunsIt) {
  CellResult& cell = results_[2].cells[0];
  ASSERT_EQ(cell.cell->json["workers"], 4);
  cell.trials.clear();
  cell.failure = "not run";
  EXPECT_SAYS(ErrorOf("method=dense,workers=4", "method=wfbp,workers=4"),
              "has not run; `sparfuse run t` runs it");
  cell.failure = "timeout";
  row_.config_hash = cell.cell->config_hash;
  row_.trial_id = "t/other/dense-b0-1";
  const TemporaryFolder results;
  results_folder_ = results.path();
  row_.directory = "trials/t/other/dense-b0-1";
  std::filesystem::create_directories(results.path() / row_.directory);
  PrivateFacts facts;
  facts.failure = "rank 1 does not answer";
  WritePrivateFacts(results.path() / row_.directory, facts);
  rows_ = {row_};
  EXPECT_SAYS(ErrorOf("method=dense,workers=4", "method=wfbp,workers=4"),
              "has no result: timeout: rank 1 does not answer (t/other/dense-b0-1; its log.txt "
              "has the rest); `sparfuse run t` runs it again");
}

}  // namespace
}  // namespace sparfuse::harness
