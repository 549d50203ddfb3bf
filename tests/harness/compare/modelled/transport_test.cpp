// Tests that the model carries ratios over, and that the remainder is the part that it cannot
// explain.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/compare/comparison_table.hpp"
#include "harness/compare/modelled/modelled_side.hpp"
#include "tests/harness/compare/modelled/compared_sides.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

TEST(Product, AddsTheSquaresOfHowFarEndsAre) {
  const Interval a{2, 2 * std::exp(-0.3), 2 * std::exp(0.3), 5};
  const Interval b{3, 3 * std::exp(-0.4), 3 * std::exp(0.4), 32};
  const Interval product = Product(a, b);
  EXPECT_NEAR(product.value, 6, kRounding);
  EXPECT_NEAR(product.low, 6 * std::exp(-0.5), kRounding);
  EXPECT_NEAR(product.high, 6 * std::exp(0.5), kRounding);
  EXPECT_EQ(product.n, 5u);
}

TEST(Product, HasNoEndsWhereOneOfTheTwoHasNone) {
  EXPECT_FALSE(Product({2, 2, 2, 1}, {3, 2, 4, 32}).has_bounds());
  EXPECT_FALSE(Product({2, 1, 4, 5}, {3, 3, 3, 1}).has_bounds());
}

TEST(ModelledRatio, IsDividedDrawByDraw) {
  const ModelledRatio same{2, {1.8, 2.0, 2.2, 2.4}};
  const Interval one = (same / same).Band();
  EXPECT_EQ(one.value, 1);
  EXPECT_EQ(one.low, 1);
  EXPECT_EQ(one.high, 1);
  EXPECT_TRUE(one.has_bounds());
  EXPECT_FALSE((same / ModelledRatio{4, {}}).Band().has_bounds());
}

class Transporting : public ::testing::Test, protected ComparedSides {
 protected:
  Transporting()
      : cells_(Cells("[[axis]]\nmethod = [\"dense\", \"wfbp\", \"safusion-inter\"]\n")) {}

  SystemComparison Carried(const ProfileOutcomes& a, const ProfileOutcomes& b) {
    SystemComparison comparison = CompareSystems(sides_, request_);
    CarryOver(comparison, Models(a, b));
    return comparison;
  }

  std::vector<Cell> cells_;
  ProfileOutcomes a_ = BetterKnown(ProjectProfile(), 10), b_ = Slower(a_, 0.25, 3);
  CompareRequest request_;
};

TEST_F(Transporting, TrialsOfTheModelLeaveAResidualOfOne) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, b_);
  const SystemComparison comparison = Carried(a_, b_);
  ASSERT_EQ(comparison.parts.at(0).cells.size(), 2u);
  for (const ComparedCell& cell : comparison.parts[0].cells) {
    const Transported& carried = cell.transported.at(0);
    ASSERT_EQ(carried.lacks, "");
    EXPECT_NEAR(carried.residual->value, 1, kRounding);
    EXPECT_NEAR(carried.ratio->value, cell.sides[1].ratio->value, kRounding);
    EXPECT_GT(std::abs(carried.ratio->value / cell.sides[0].ratio->value - 1), 0.05);
  }
}

TEST_F(Transporting, WhatNoProfileKnowsIsInTheResidual) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, b_, 1.25);
  const SystemComparison comparison = Carried(a_, b_);
  for (const ComparedCell& cell : comparison.parts.at(0).cells) {
    const Interval& residual = *cell.transported.at(0).residual;
    EXPECT_NEAR(residual.value, 0.8, kRounding);
    EXPECT_LE(residual.low, residual.value);
    EXPECT_LT(residual.high, 1);
  }
}

TEST_F(Transporting, WhatTheModelMissesOnTheFirstSideIsTakenAlong) {
  AddModelled(0, cells_, a_, 1.25);
  AddModelled(1, cells_, b_, 1.25);
  const SystemComparison comparison = Carried(a_, b_);
  for (const ComparedCell& cell : comparison.parts.at(0).cells)
    EXPECT_NEAR(cell.transported.at(0).residual->value, 1, kRounding);
}

TEST_F(Transporting, OfOneProfileTheRatioAndItsIntervalStayAsTheyAre) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, a_);
  const SystemComparison comparison = Carried(a_, a_);
  for (const ComparedCell& cell : comparison.parts.at(0).cells) {
    const Interval &ratio = *cell.transported.at(0).ratio, &measured = *cell.sides[0].ratio;
    EXPECT_NEAR(ratio.value, measured.value, kRounding);
    EXPECT_NEAR(ratio.low, measured.low, kRounding);
    EXPECT_NEAR(ratio.high, measured.high, kRounding);
  }
}

TEST_F(Transporting, ErrorsOfBothProfilesAreInTheInterval) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, b_);
  const SystemComparison comparison = Carried(a_, b_);
  for (const ComparedCell& cell : comparison.parts.at(0).cells) {
    const Transported& carried = cell.transported.at(0);
    const auto width = [](const Interval& of) { return of.high / of.low; };
    EXPECT_GT(width(*carried.ratio), width(*cell.sides[0].ratio));
    EXPECT_GT(width(*carried.model_first), 1);
    EXPECT_GT(width(*carried.model_second), 1);
    EXPECT_TRUE(carried.residual->low < 1 && 1 < carried.residual->high);
  }
}

TEST_F(Transporting, ChangesNoVerdict) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, b_);
  const SystemComparison before = CompareSystems(sides_, request_);
  const SystemComparison after = Carried(a_, b_);
  for (std::size_t i = 0; i < before.parts.at(0).cells.size(); ++i) {
    const SideVerdict &one = before.parts[0].cells[i].verdicts[0],
                      &other = after.parts[0].cells[i].verdicts[0];
    EXPECT_EQ(one.contrast.agreement, other.contrast.agreement);
    EXPECT_EQ(one.contrast.ratio.value, other.contrast.ratio.value);
  }
}

TEST_F(Transporting, AProfileThatLacksSomethingIsToldTheCommand) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, a_);
  const SystemComparison comparison = Carried(a_, {});
  for (const ComparedCell& cell : comparison.parts.at(0).cells) {
    const Transported& carried = cell.transported.at(0);
    EXPECT_FALSE(carried.ratio.has_value());
    EXPECT_NE(carried.lacks.find("digits-resnet with batch 32 and 1 thread(s) a rank; measure it "
                                 "on b with `sparfuse profile digits-resnet --batch 32 --threads 1 "
                                 "--link 1:100 --ranks 2`"),
              std::string::npos)
        << carried.lacks;
  }
}

TEST_F(Transporting, CarriesOverWhatOnlyTheFirstSideHas) {
  AddModelled(0, cells_, a_);
  AddModelled(1, {cells_[0]}, b_);
  request_.lone = true;
  const SystemComparison comparison = Carried(a_, b_);
  ASSERT_EQ(comparison.parts.at(0).cells.size(), 2u);
  const ComparedCell& cell = comparison.parts[0].cells[0];
  EXPECT_TRUE(cell.transported.at(0).ratio.has_value());
  EXPECT_FALSE(cell.transported[0].residual.has_value());
  EXPECT_EQ(cell.verdicts[0].why_not, "b: not run");
}

TEST_F(Transporting, TablesAndNumbersSayThatItIsModelled) {
  AddModelled(0, cells_, a_);
  AddModelled(1, cells_, b_, 1.25);
  const SystemComparison comparison = Carried(a_, b_);
  const ModelRequest asked{true, "", {"profile of a", "profile of b"}};
  const auto sentences = SummaryOf({comparison, sides_, request_, asked});
  EXPECT_NE(sentences.back().find("2 ratios, 0 with a residual that may be 1, 2 with one that is "
                                  "not (farthest: "),
            std::string::npos)
      << sentences.back();
  std::string text;
  for (const Table& table : TablesOf({comparison, sides_, request_, asked}))
    text += Render(table, TableFormat::kMarkdown);
  for (const char* said : {"a carried over by the model", "modelled, never a base of a verdict",
                           "of a: profile of a; of b: profile of b", "0.80x ["}) {
    EXPECT_NE(text.find(said), std::string::npos) << said;
  }
  const json cell = ComparisonJson({comparison, sides_, request_, asked})["cells"][0];
  EXPECT_EQ(cell["transported"]["mode"], "modelled");
  EXPECT_NEAR(cell["transported"]["residual"]["value"].get<double>(), 0.8, kRounding);
  const std::string csv = ComparisonCsv({comparison, sides_, request_, asked});
  EXPECT_NE(csv.find(",transported,transported_low,transported_high,residual,"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse::harness
