// Tests predictors beside the model: formulas, no gain, the first published number.
#include "harness/report/figures/skill.hpp"

#include <gtest/gtest.h>

namespace sparfuse::harness {
namespace {

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

}  // namespace
}  // namespace sparfuse::harness
