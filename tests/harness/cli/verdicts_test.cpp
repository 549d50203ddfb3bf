// Tests the list of cells not run on a paper's page, and the verdicts of --strict.
#include <gtest/gtest.h>

#include "harness/catalog/revisions.hpp"
#include "harness/cli/drawing.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

// A measured part and a modelled one, each with one cell and one claim.
constexpr const char* kFile = R"(
id = "p/e"
[[not_run]]
what = "a GPU"
reason = "there is none"
[defaults]
workload = "digits-resnet"
method = "wfbp"
workers = 2
[[part]]
id = "live"
title = "Live"
[part.defaults]
mode = "measured"
[[part.claim]]
quote = "measured"
metric = "throughput"
of = { workers = 2 }
more_than = 5
[[part]]
id = "computed"
title = "Computed"
[part.defaults]
mode = "modelled"
cluster = "this-machine"
[[part.claim]]
quote = "modelled"
metric = "throughput"
of = { workers = 2 }
more_than = 5
)";

class Verdicts : public ::testing::Test {
 protected:
  Experiment experiment_ =
      ParseExperiment(TomlFile::Parse(kFile, "f.toml"), SmallCatalog(), "/nonexistent");
  std::vector<TrialRow> rows_;

  std::vector<PartResult> Results() const {
    return ResultsOf(experiment_.parts, SmallCatalog(), rows_, "machine");
  }
};

TEST_F(Verdicts, ListsWhatTheFileSaysAndTheCellsWithoutATrial) {
  const auto list = NotRunOf(experiment_, Results());
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].what, "a GPU");
  EXPECT_EQ(list[0].reason, "there is none");
  EXPECT_EQ(list[1].what, "1 of 1 cells of part \"Live\", measured");
  EXPECT_EQ(list[2].what, "1 of 1 cells of part \"Computed\", modelled");
  EXPECT_NE(list[1].reason.find("`sparfuse reproduce p/e`"), std::string::npos);
}

TEST_F(Verdicts, OfModelledOnlyTheModelledClaimsCount) {
  EXPECT_TRUE(AnyClaimFails(Results(), false));
  EXPECT_TRUE(AnyClaimFails(Results(), true));
  TrialRow row;
  row.config = experiment_.parts[1].cells[0].json;
  row.config_hash = experiment_.parts[1].cells[0].config_hash;
  row.system_hash = "machine";
  row.revisions = nlohmann::json(RevisionsOf(SmallCatalog(), experiment_.parts[1].cells[0].config));
  row.status = "ok";
  row.mode = "modelled";
  row.metrics = {{"throughput", 6}};
  rows_.push_back(row);
  EXPECT_TRUE(AnyClaimFails(Results(), false));
  EXPECT_FALSE(AnyClaimFails(Results(), true));
  rows_[0].metrics.Set("throughput", 4);
  EXPECT_TRUE(AnyClaimFails(Results(), true));
}

}  // namespace
}  // namespace sparfuse::harness
