// Tests predictions beside published values of the same machines: their errors, and predictors that
// need no model, as formulas, no gain and the first published number.
#include "harness/report/figures/skill.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

Prediction Of(double theirs, std::vector<std::pair<std::string, double>> by,
              const std::string& setting = "s", bool calibrated = false) {
  return {setting,
          theirs,
          std::move(by),
          calibrated,
          {{"cluster", "x"}, {"workload", "x"}, {"workers", "8"}, {"method", setting}}};
}

TEST(Skill, ARowSaysHowFarHowOftenTooHighAndWhichPairsAreInOrder) {
  const auto rows = SkillRows({
      Of(2.0, {{kModel, 2.2}, {kNoGain, 1.0}}),
      Of(1.0, {{kModel, 0.9}, {kNoGain, 1.0}}),
      Of(1.02,
         {{kModel, 0.5}, {kNoGain, 1.0}}),  // within 3 % of the second: without an order to it
      Of(4.0, {{kModel, 5.2}, {kNoGain, 1.0}}, "t"),
  });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], Row({kModel, "4", "20.0 %", "44.7 %", "2 of 4", "2 of 2", "yes"}));
  EXPECT_EQ(rows[1][4], "0 of 4");
  EXPECT_EQ(rows[1][5], "0 of 2");
  EXPECT_EQ(rows[1][6], "");
}

TEST(Skill, TheNearestSaysSomethingOfEveryNumber) {
  const std::vector<Prediction> found = {Of(1, {{kModel, 1.3}}),
                                         Of(1, {{kModel, 1.1}, {kFirst, 1.05}}, "t")};
  const auto rows = SkillRows(found);
  EXPECT_EQ(rows[0][6], "yes");
  EXPECT_EQ(rows[1][6], "");
  const auto beyond = BeyondFirst(found);
  ASSERT_EQ(beyond.size(), 1u);
  EXPECT_EQ(SkillRows(beyond)[1][6], "yes");
  EXPECT_TRUE(BeyondFirst(beyond).empty());
  const GroupedTable table = TestbedTable({{"e", "figure", found}});
  ASSERT_EQ(table.groups.size(), 1u);
  EXPECT_EQ(table.groups[0].first, "e, figure");
  Row names;
  for (const Row& row : table.groups[0].second) names.push_back(row[0]);
  EXPECT_EQ(names, Row({std::string("predicted: ") + kModel, std::string("predicted: ") + kFirst,
                        std::string("predicted, without the first: ") + kModel,
                        std::string("predicted, without the first: ") + kFirst}));
}

TEST(Skill, CalibrationInputsStandApart) {
  const std::vector<Prediction> found = {Of(1, {{kModel, 1.5}}), Of(1, {{kModel, 1}}, "s", true)};
  const auto rows = TestbedTable({{"e", "figure", found}}).groups[0].second;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1][0], std::string("calibrated with: ") + kModel);
  EXPECT_EQ(SkillTable({{"all", found}}).groups[0].second[0][1], "1");
}

TEST(Skill, StrataHaveTheRangeOfTheirMedians) {
  const std::vector<Prediction> found = {Of(1, {{kModel, 1.1}}, "a"), Of(1, {{kModel, 1.3}}, "b")};
  const GroupedTable table = TestbedTable({{"e", "figure", found}});
  EXPECT_EQ(table.columns[10], "by method");
  const Row& row = table.groups[0].second[0];
  EXPECT_EQ(row[10], "10.0 to 30.0 %");
  EXPECT_EQ(row[9], "–");  // all have one number of workers
}

// A predictor that says the same of all puts none in order, whichever comes first.
TEST(Skill, EqualValuesHaveNoOrder) {
  const auto rows = SkillRows(
      {Of(1.0, {{kModel, 1.1}, {kNoGain, 1.0}}), Of(2.0, {{kModel, 2.2}, {kNoGain, 1.0}})});
  EXPECT_EQ(rows[0][5], "1 of 1");
  EXPECT_EQ(rows[1][5], "0 of 1");
}

TEST(Skill, HasRowsOfEachValueOfAKeyAndOfAllTestbedsTogether) {
  const auto of = [](double theirs, double ours, const std::string& method) {
    Prediction one = Of(theirs, {{kModel, ours}});
    one.strata = {{"cluster", "\"x\""}, {"workload", "\"x\""}, {"workers", "8"}};
    one.strata["method"] = "\"" + method + "\"";
    return one;
  };
  const std::vector<TestbedPredictions> found = {{"e", "f", {of(1, 1.1, "ps"), of(2, 2.6, "a")}},
                                                 {"g", "f", {of(1, 1.1, "ps"), of(4, 4.8, "b")}}};
  const auto headings = [&](const SkillRequest& asked) {
    Row names;
    for (const auto& [heading, rows] : TestbedTable(found, asked).groups)
      names.push_back(heading + ": " + rows[0][1] + ", " + rows[0][2]);
    return names;
  };
  EXPECT_EQ(headings({}), Row({"e, f: 2, 20.0 %", "g, f: 2, 15.0 %",
                               "all of these, each number once: 3, 20.0 %"}));
  EXPECT_EQ(headings({"", {{"method", "ps"}}}), Row({"e, f: 1, 30.0 %", "g, f: 1, 20.0 %",
                                                     "all of these, each number once: 2, 25.0 %"}));
  const Row by = headings({"method", {{"method", "ps"}}});
  ASSERT_EQ(by.size(), 7u);
  EXPECT_EQ(by[1], "e, f, method = a: 1, 30.0 %");
  EXPECT_EQ(by[6], "all of these, each number once, method = b: 1, 20.0 %");
  EXPECT_TRUE(TestbedTable(found, {"", {{"workers", "8"}}}).groups.empty());
}

TEST(Skill, ABarInACellDoesNotEndIt) {
  const std::string text = Render(TestbedTable({{"e", "figure", {Of(1, {{kModel, 1.1}})}}}));
  EXPECT_TRUE(text.starts_with("**e, figure**\n\n| rows ")) << text;
  EXPECT_NE(text.find("median \\|error\\|"), std::string::npos);
}

using Rows = std::vector<std::vector<std::string>>;

class Agreement : public ::testing::Test {
 protected:
  // A cell on the cluster ours-NETWORK whose throughput exceeds the published one by the share
  // `error`.
  void Add(const std::string& method, int workers, const std::string& network, double theirs,
           double error, const std::string& confidence = "verbatim table") {
    Cell& cell = cells_.emplace_back();
    cell.config.method = cell.label = method;
    cell.config.workload = "m";
    cell.config.workers = workers;
    cell.config.ranks_per_node = 4;
    cell.config.mode = Mode::kModelled;
    cell.config.cluster = "ours-" + network;
    cell.config.sparsifier = "none";
    cell.json = ToJson(cell.config);
    TrialRow& row = trials_.emplace_back();
    row.metrics = {{"throughput", theirs * (1 + error)}};
    CellResult result;
    result.cell = &cell;
    result.trials[0] = &row;
    result_.cells.push_back(result);
    rows_.push_back({{"artifact", "t1"},
                     {"model", "M"},
                     {"workers", std::to_string(workers)},
                     {"network", network},
                     {"method", method == "one" ? "ONE" : "TWO"},
                     {"sparsifier", "none"},
                     {"density", "1.0"},
                     {"value", json(theirs).dump() + " +- 1.5"},
                     {"unit", "samples/s"},
                     {"confidence", confidence},
                     {"of", "m"},
                     {"cluster", "ours-" + network}});
  }

  json Found(const std::vector<std::string>& calibration = {}) {
    json cells = json::array();
    for (std::size_t i = 0; i < result_.cells.size(); ++i) cells.push_back(i);
    const json figure = {
        {"kind", "agreement"},
        {"cells", std::move(cells)},
        {"published",
         {{"paper", "Bench"}, {"methods", {{"one", {"ONE"}}, {"two", {"TWO"}}}}, {"rows", rows_}}}};
    return AgreementOf(figure, result_, calibration, catalog_);
  }
  static Rows RowsIn(const json& found, std::size_t table, std::size_t group = 0) {
    return found["tables"][table]["groups"][group][1].get<Rows>();
  }

  Catalog catalog_ = SmallCatalog();
  std::deque<Cell> cells_;
  std::deque<TrialRow> trials_;
  PartResult result_;
  json rows_ = json::array();
};

TEST_F(Agreement, ErrorsAreOfTheRowWithTheCellsClusterMethodAndWorkers) {
  Add("one", 8, "slow", 100, 0.09);
  Add("one", 8, "fast", 400, -0.20);
  Add("two", 8, "fast", 200, 0.02);
  const json found = Found();
  EXPECT_EQ(RowsIn(found, 0), (Rows{{"all", "3", "9.0 %", "17.8 %", "-20.0 %", "–"}}));
  EXPECT_EQ(found["median_error"], "9.0 %");
  EXPECT_EQ(found["tables"][0]["groups"][1][0], "By cluster");
  const Rows by_cluster = RowsIn(found, 0, 1);
  ASSERT_EQ(by_cluster.size(), 2u);
  EXPECT_EQ(by_cluster[0][1] + by_cluster[1][1], "12");
  const Rows misses = RowsIn(found, 3);
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0], (std::vector<std::string>{"one, m, 8 workers, ours-fast", "320 units/s",
                                                 "400", "-20.0 %"}));
  EXPECT_NEAR(found["pairs"][1]["error"].get<double>(), -0.20, 1e-12);
}

TEST_F(Agreement, InputsAndRowsThatContradictThemselvesAreNotCounted) {
  Add("one", 8, "slow", 100, 0.01);
  Add("two", 8, "slow", 100, 0.50);
  Add("one", 16, "slow", 100, 0.60, "verbatim table; contradicts its network");
  json found = Found({"Bench/t1/TWO/M/8/slow"});
  EXPECT_EQ(found["counted"], 1);
  EXPECT_EQ(found["pairs"][1]["calibrated"], true);
  EXPECT_EQ(RowsIn(found, 0)[0][2], "1.0 %");
  EXPECT_EQ(Found({"Bench/t1/TWO/M/16/slow"})["counted"], 2);  // another row
  EXPECT_EQ(Found({"Bench/t1/TWO", "Bench/t1/ONE"})["median_error"], nullptr);
}

TEST_F(Agreement, AnOrderCountsWherePublishedNumbersDiffer) {
  Add("one", 8, "slow", 100, 0.0);
  Add("two", 8, "slow", 102, -0.1);  // within 3 %: no order
  Add("one", 16, "slow", 100, 0.0);
  Add("two", 16, "slow", 110, -0.1);  // 100 against 99
  const json found = Found();
  EXPECT_EQ(found["tables"][1]["groups"][0][0], "Order of methods right in 1 of 2 settings");
  EXPECT_EQ(RowsIn(found, 1), (Rows{{"ours-slow, m, 16 workers", "one / two", "1.010", "0.909"}}));
}

TEST_F(Agreement, ScalingStartsWhereThereAreSeveralNodes) {
  Add("one", 4, "fast", 90, 0.3);
  Add("one", 8, "fast", 100, 0.0);
  Add("one", 16, "fast", 190, 0.0);
  Add("one", 32, "fast", 300, 0.1);
  EXPECT_EQ(RowsIn(Found(), 2),
            (Rows{{"ours-fast, m", "one", "8 to 32", "3.30x", "3.00x", "+10.0 %"}}));
}

TEST_F(Agreement, NothingPublishedCountsNothing) {
  Add("one", 8, "slow", 100, 0.0);
  rows_.clear();
  EXPECT_EQ(Found()["counted"], 0);
}

TEST(Quantile, LiesOnStraightLines) {
  EXPECT_EQ(QuantileOf({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(QuantileOf({0, 10}, 0.9), 9);
  EXPECT_EQ(QuantileOf({7}, 0.9), 7);
}

}  // namespace
}  // namespace sparfuse::harness
