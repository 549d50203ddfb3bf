// Tests what is compared between systems, and what is not.
#include "harness/compare/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/compare/comparison_table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json ConfigOf(const std::string& method, int workers) {
  const bool dense = method == "dense";
  return {{"method", method},
          {"workload", "digits-resnet"},
          {"workers", workers},
          {"kind", "throughput"},
          {"mode", "measured"},
          {"sparsifier", dense ? "none" : "topk"},
          {"density", dense ? 1.0 : 0.01}};
}

class Comparing : public ::testing::Test {
 protected:
  Comparing() {
    for (const char* name : {"a", "b"}) {
      sides_.push_back(
          SystemSide{name, std::string("machine ") + name, {}, [](const TrialRow& row) {
                       return json{{"plans", json::array({row.provenance["plan"]})}};
                     }});
    }
  }

  TrialRow& Add(std::size_t side, const std::string& method, int block, double throughput,
                int workers = 2) {
    TrialRow row;
    row.trial_id = sides_[side].name + std::to_string(sides_[side].rows.size());
    row.experiment = "e";
    row.part = "p";
    row.kind = "throughput";
    row.mode = "measured";
    row.method = method;
    row.workers = workers;
    row.config = ConfigOf(method, workers);
    row.config_hash = method + std::to_string(workers);
    row.system_hash = sides_[side].name;
    row.system = {{"cpu_model", "cpu " + sides_[side].name},
                  {"cores", 2},
                  {"memory_gib", 4},
                  {"gpus", json::array()}};
    row.provenance = {{"machine", {{"placement", json::array({"n1", "n2"})}}},
                      {"software", {{"mpi", "4.1"}}},
                      {"plan", {{"unit_sizes", "1,1"}}}};
    row.revisions = {{"method:" + method, 1}};
    row.status = "ok";
    row.block = block;
    row.metrics = {{"throughput", throughput},
                   {"step_seconds", 1 / throughput},
                   {"exposed_communication_seconds", 0.5 / throughput}};
    row.units = {{"throughput", "images/s"}};
    sides_[side].rows.push_back(row);
    return sides_[side].rows.back();
  }

  // Blocks of dense and of a method that is so many times as fast.
  void AddBlocks(std::size_t side, double dense, double times, int blocks = 4) {
    for (int block = 0; block < blocks; ++block) {
      const double noise = 1 + 0.002 * block;
      Add(side, "dense", block, dense * (1 + 0.1 * block));
      Add(side, "wfbp", block, dense * (1 + 0.1 * block) * times * noise);
    }
  }

  SystemComparison Compared() const { return CompareSystems(sides_, request_); }
  const ComparedCell& Only(const SystemComparison& comparison) const {
    EXPECT_EQ(comparison.parts.size(), 1u);
    EXPECT_EQ(comparison.parts.at(0).cells.size(), 1u);
    return comparison.parts[0].cells[0];
  }
  // Of the one cell.
  SideVerdict Verdict() const { return Only(Compared()).verdicts.at(0); }

  std::vector<SystemSide> sides_;
  CompareRequest request_;
};

TEST_F(Comparing, RatiosAreWithinBlocksAndAbsoluteValuesDecideNothing) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 900, 1.5);
  const SideVerdict verdict = Verdict();
  EXPECT_EQ(verdict.why_not, "");
  EXPECT_EQ(verdict.contrast.agreement, Agreement::kAgree);
  EXPECT_NEAR(verdict.contrast.ratio.value, 1, 1e-9);
}

TEST_F(Comparing, SaysOnWhichMachineTheGainIsLarger) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 2.0);
  EXPECT_EQ(Verdict().contrast.agreement, Agreement::kSecond);
  EXPECT_NEAR(Verdict().contrast.ratio.value, 0.75, 1e-9);
}

TEST_F(Comparing, AStoreAgainstItselfNeverDiffers) {
  AddBlocks(0, 100, 1.5);
  for (int block = 0; block < 4; ++block) Add(0, "safusion", block, 80 + 30 * block);
  sides_[1].rows = sides_[0].rows;
  const SystemComparison comparison = Compared();
  ASSERT_EQ(comparison.parts.at(0).cells.size(), 2u);
  for (const ComparedCell& cell : comparison.parts[0].cells) {
    const Agreement agreement = cell.verdicts[0].contrast.agreement;
    EXPECT_TRUE(agreement == Agreement::kAgree || agreement == Agreement::kUndecided);
    EXPECT_DOUBLE_EQ(cell.verdicts[0].contrast.ratio.value, 1);
  }
  EXPECT_TRUE(comparison.differences.empty());
}

TEST_F(Comparing, ASideWithoutTheReferenceIsNotComparable) {
  AddBlocks(0, 100, 1.5);
  for (int block = 0; block < 4; ++block) Add(1, "wfbp", block, 100);
  EXPECT_EQ(Verdict().why_not, "b: no dense in this setting to compare with");
}

TEST_F(Comparing, OtherRevisionsAreNotComparable) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[1].rows) {
    if (row.method == "wfbp") row.revisions = {{"method:wfbp", 2}};
  }
  EXPECT_EQ(Verdict().why_not, "method:wfbp is of revision 1 and 2");
}

TEST_F(Comparing, SoAreOtherRevisionsOfTheReference) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[1].rows) {
    if (row.method == "dense") row.revisions = {{"method:dense", 7}};
  }
  EXPECT_EQ(Verdict().why_not, "method:dense is of revision 1 and 7");
}

TEST_F(Comparing, ARatioWithinASideIsOfOneRevision) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[0].rows)
    row.revisions = {{"method:" + row.method, 1}, {"engine:live", row.method == "dense" ? 1 : 2}};
  EXPECT_EQ(Verdict().why_not, "a: dense was run with another revision of engine:live");
}

TEST_F(Comparing, OfSeveralRevisionsTheNewestCounts) {
  AddBlocks(0, 100, 1.5);
  for (TrialRow& row : sides_[0].rows) row.revisions = {{"older", 1}};
  AddBlocks(0, 100, 2.0);
  AddBlocks(1, 100, 2.0);
  EXPECT_EQ(Verdict().contrast.agreement, Agreement::kAgree);
}

TEST_F(Comparing, AnotherRegimeHasNoVerdict) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[1].rows)
    row.metrics.Set("exposed_communication_seconds", 0.1 * row.metrics.at("step_seconds"));
  EXPECT_NE(
      Verdict().why_not.find("other regime: the reference exposes communication of 1 and 0.111"),
      std::string::npos)
      << Verdict().why_not;
}

TEST_F(Comparing, RanksOfOneNodeAreAnotherRegimeThanNodes) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[1].rows)
    row.provenance["machine"]["placement"] = json::array({"n1", "n1"});
  EXPECT_EQ(Verdict().why_not, "other regime: ranks are linked between nodes and within a node");
}

TEST_F(Comparing, TheReferenceOfEqualSparsityComesFirst) {
  request_.reference = "topk-sum";
  for (std::size_t side : {0, 1}) {
    for (int block = 0; block < 3; ++block) {
      Add(side, "wfbp", block, 150);
      for (const double density : {0.01, 0.1}) {
        TrialRow& row = Add(side, "topk-sum", block, density == 0.01 ? 100 : 50);
        row.config["density"] = density;
        row.config_hash += std::to_string(density);
      }
    }
  }
  EXPECT_NEAR(Only(Compared()).sides[0].ratio->value, 1.5, 1e-9);
}

TEST_F(Comparing, NamesWhatDiffersAndWhatIsHiddenWithinASide) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  sides_[1].rows[2].provenance["software"]["mpi"] = "5.0";
  const auto differences = Compared().differences;
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].name, "system.cpu_model");
  EXPECT_EQ(differences[0].values, (std::vector<std::string>{"cpu a", "cpu b"}));
  EXPECT_FALSE(differences[0].hidden);
  EXPECT_EQ(differences[1].name, "software.mpi");
  EXPECT_EQ(differences[1].values, (std::vector<std::string>{"4.1", "4.1 | 5.0"}));
  EXPECT_TRUE(differences[1].hidden);
}

TEST_F(Comparing, SaysHowPlansDiffer) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 1.5);
  for (TrialRow& row : sides_[1].rows)
    row.provenance["plan"] = {{"unit_sizes", "2"}, {"dense_units", json::array({0})}};
  const std::string plans = Only(Compared()).plans;
  EXPECT_TRUE(plans.starts_with("a makes 2 exchanges")) << plans;
  EXPECT_NE(plans.find("b makes 1 exchange: 1 dense"), std::string::npos) << plans;
}

TEST_F(Comparing, TablesAndNumbersSayTheSame) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 900, 2.0);
  const SystemComparison comparison = Compared();
  EXPECT_EQ(SummaryOf(comparison, sides_, request_).at(0),
            "a against b: 1 ratio to dense: 1 larger on b");
  std::string text;
  for (const Table& table : TablesOf(comparison, sides_, request_))
    text += Render(table, TableFormat::kMarkdown);
  EXPECT_NE(text.find("larger on b"), std::string::npos);
  EXPECT_NE(text.find("0.75x"), std::string::npos);
  const json numbers = ComparisonJson(comparison, sides_, request_);
  EXPECT_EQ(numbers["cells"][0]["verdict"], "second");
  EXPECT_NEAR(numbers["cells"][0]["first_over_second"]["value"].get<double>(), 0.75, 1e-9);
  const std::string csv = ComparisonCsv(comparison, sides_, request_);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2);
  EXPECT_NE(csv.find(",second,"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse::harness
