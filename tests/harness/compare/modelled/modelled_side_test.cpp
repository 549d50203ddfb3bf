// Tests that the model carries ratios over and that the remainder is the part that it cannot
// explain, and the forcing of one side's plans on the other: as cells, by the model, measured, as a
// file.
#include "harness/compare/modelled/modelled_side.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/compare/comparison_table.hpp"
#include "harness/compare/modelled/forced_plan.hpp"
#include "tests/harness/compare/modelled/compared_sides.hpp"
#include "tests/support/errors.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;

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
    EXPECT_SAYS(carried.lacks,
                "digits-resnet with batch 32 and 1 thread(s) a rank; measure it "
                "on b with `sparfuse profile digits-resnet --batch 32 --threads 1 "
                "--link 1:100 --ranks 2`");
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
  EXPECT_SAYS(sentences.back(),
              "2 ratios, 0 with a residual that may be 1, 2 with one that is "
              "not (farthest: ");
  const std::string text = TextOf({comparison, sides_, request_, asked});
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

// A trial's outcome with this plan.
json OutcomeWith(const std::string& units, json more = json::object()) {
  json plan = {{"step", 0},
               {"unit_sizes", units},
               {"dense_units", json::array()},
               {"side_units", json::array()},
               {"tensors", {{"dense", 0}, {"offloaded", 0}, {"reduced", 0}}}};
  plan.update(more, true);
  json layout = json::array();
  const auto& layers = workloads::LayersOf("digits-resnet");
  for (const auto& tensor : layers.tensors)
    layout.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"numel", tensor.numel}});
  return {{"plans", json::array({plan})}, {"layout", layout}};
}

class Forcing : public ::testing::Test, protected ComparedSides {
 protected:
  Forcing()
      : cells_(Cells("[[axis]]\nmethod = [\"dense\", \"safusion-inter\"]\n")),
        given_(Cells("[[axis]]\nmethod = [\"safusion-inter\"]\nmethod_options = [{ plan = { units "
                     "= [3, 40] } }]\n")
                   .at(0)) {}

  void Plan(std::size_t side, const json& outcome) {
    for (TrialRow& row : sides_[side].rows) {
      if (row.config_hash == cells_[1].config_hash) row.provenance["outcome"] = outcome;
    }
  }
  void AddBoth() {
    AddModelled(0, cells_, a_);
    AddModelled(1, cells_, b_);
    Plan(0, OutcomeWith("3,40"));
    Plan(1, OutcomeWith("20,23"));
  }

  SystemComparison Forced(bool modelled = true) {
    SystemComparison comparison = CompareSystems(sides_, request_);
    models_ = modelled ? Models(a_, b_) : std::vector<std::unique_ptr<ModelledSide>>();
    ForcePlans(comparison, sides_, 0, DisturbedTrials::kApart, models_);
    return comparison;
  }
  static const ComparedCell& Only(const SystemComparison& comparison) {
    return comparison.parts.at(0).cells.at(0);
  }

  std::vector<Cell> cells_;
  Cell given_;  // with a's plan
  ProfileOutcomes a_ = ProjectProfile(), b_ = Slower(a_, 0.25, 3);
  CompareRequest request_;
  std::vector<std::unique_ptr<ModelledSide>> models_;
};

TEST_F(Forcing, IsTheCellThatAFileWithThisPlanHas) {
  const CellConfig forced = WithPlanOf(cells_[1].config, OutcomeWith("3,40"));
  EXPECT_EQ(forced, given_.config);
  EXPECT_EQ(ConfigHash(forced), given_.config_hash);
}

TEST_F(Forcing, APlanThatSaysMoreThanItsUnitsIsRefused) {
  const auto error = [&](const json& more) {
    return ErrorOf([&] { WithPlanOf(cells_[1].config, OutcomeWith("3,40", more)); });
  };
  ExpectIn("1 units sent dense", error({{"dense_units", json::array({1})}}));
  ExpectIn("2 units selected from beside backward", error({{"side_units", json::array({0, 1})}}));
  ExpectIn("4 tensors offloaded", error({{"tensors", {{"offloaded", 4}}}}));
  ExpectIn("2 tensors dense, 2 tensors reduced",
           error({{"tensors", {{"reduced", 2}, {"dense", 2}}}}));
  ExpectIn("they add up to more",
           ErrorOf([&] { WithPlanOf(cells_[1].config, OutcomeWith("3,41")); }));
  ExpectIn("neither plan nor tensors", ErrorOf([&] { WithPlanOf(cells_[1].config, json()); }));
}

TEST_F(Forcing, AMethodThatSendsNoUnitsIsRefused) {
  const Cell naive = Cells("[[axis]]\nmethod = [\"safusion-naive\"]\n").at(0);
  ExpectIn("does not send the units of a plan",
           ErrorOf([&] { WithPlanOf(naive.config, OutcomeWith("3,40")); }));
}

TEST_F(Forcing, WhatWouldChangeThePlanAgainIsOff) {
  const Cell again =
      Cells("[[axis]]\nmethod = [\"safusion\"]\nmethod_options = [{ replan_every = 5 }]\n").at(0);
  const CellConfig forced = WithPlanOf(again.config, OutcomeWith("3,40"));
  EXPECT_EQ(IntOption(forced.method_options.sending, "replan_every"), 0);
}

TEST_F(Forcing, EqualPlansAreNotForced) {
  AddBoth();
  Plan(1, OutcomeWith("3,40"));
  const SystemComparison comparison = Forced();
  EXPECT_TRUE(Only(comparison).forced.at(0).own);
  EXPECT_TRUE(Only(comparison).forced.at(1).own);
}

// On b: the measured ratio, times the model's gain of a's plan over b's.
TEST_F(Forcing, TheModelSaysWhatThePlanOfTheOtherSideMakesOfARatio) {
  AddBoth();
  const SystemComparison comparison = Forced();
  const ForcedPlan& forced = Only(comparison).forced.at(1);
  ASSERT_EQ(forced.lacks, "");
  EXPECT_EQ(forced.units, "3,40");
  const Cell own = Cells(
                       "[[axis]]\nmethod = [\"safusion-inter\"]\nmethod_options = [{ plan = { "
                       "units = [20, 23] } }]\n")
                       .at(0);
  const double gain = StepSeconds(own, b_) / StepSeconds(given_, b_);
  EXPECT_GT(std::abs(gain - 1), 0.001);
  EXPECT_NEAR(forced.gain->value, gain, kRounding);
  EXPECT_FALSE(forced.gain_measured);
  const double ratio = Only(comparison).sides[1].ratio->value;
  EXPECT_NEAR(forced.modelled->value, ratio * gain, kRounding);
  const double giver = Only(comparison).sides[0].ratio->value;
  EXPECT_NEAR(forced.rest->value, giver / (ratio * gain), kRounding);
  EXPECT_FALSE(forced.measured.has_value());
}

TEST_F(Forcing, TrialsWithThePlanTakeThePlaceOfTheModel) {
  AddBoth();
  for (int block = 0; block < kBlocks; ++block) {
    for (const auto& [cell, seconds] :
         {std::pair(&cells_[0], 1.0), {&cells_[1], 0.8}, {&given_, 0.5}}) {
      Add(1, *cell, block, seconds).experiment = "plan-of-a";
    }
  }
  const SystemComparison comparison = Forced();
  ASSERT_EQ(comparison.parts.size(), 1u);  // a has no trial of plan-of-a
  const ForcedPlan& forced = Only(comparison).forced.at(1);
  EXPECT_TRUE(forced.gain_measured);
  EXPECT_NEAR(forced.measured->value, 2, kRounding);
  EXPECT_NEAR(forced.gain->value, 1.6, kRounding);
  EXPECT_NEAR(forced.rest->value, Only(comparison).sides[0].ratio->value / 2, kRounding);
  EXPECT_TRUE(forced.modelled.has_value());
}

TEST_F(Forcing, TensorsInAnotherReadyOrderAreOtherUnits) {
  AddBoth();
  json other = OutcomeWith("20,23");
  std::swap(other["layout"][0], other["layout"][1]);
  Plan(1, other);
  ExpectIn("tensors become ready in another order: number 1", Only(Forced()).forced.at(1).lacks);
}

TEST_F(Forcing, TheExperimentHasTheCellsThatAreCompared) {
  AddBoth();
  const SystemComparison comparison = Forced(false);
  const PlanExperiment made =
      ExperimentOfPlans(comparison, sides_, 0, catalog_, profiles_, "plans.toml");
  EXPECT_EQ(made.plans, 1u);
  EXPECT_EQ(made.id, "plan-of-a");
  const Experiment read =
      ParseExperiment(TomlFile::Parse(made.text, "plans.toml"), catalog_, profiles_);
  std::set<std::string> hashes;
  for (const Cell& cell : read.parts.at(0).cells) hashes.insert(cell.config_hash);
  EXPECT_EQ(hashes, (std::set<std::string>{cells_[0].config_hash, cells_[1].config_hash,
                                           given_.config_hash}));
  EXPECT_EQ(read.parts[0].blocks, 5);
  EXPECT_EQ(read.parts[0].reference, "dense");
  EXPECT_EQ(made.text.find("threads_per_worker"), std::string::npos) << made.text;  // the default
}

TEST_F(Forcing, TheExperimentNamesWhatItLeavesOut) {
  AddBoth();
  Plan(0, OutcomeWith("3,40", {{"tensors", {{"offloaded", 4}}}}));
  const SystemComparison comparison = Forced(false);
  ExpectIn(
      "no plan of a can be forced: safusion-inter, digits-resnet, workers 2: its plan has more "
      "than the units that a given plan can state: 4 tensors offloaded",
      ErrorOf([&] { ExperimentOfPlans(comparison, sides_, 0, catalog_, profiles_, "p.toml"); }));
}

TEST_F(Forcing, TablesSayWhatIsModelledAndWhatWasMeasured) {
  AddBoth();
  const SystemComparison comparison = Forced();
  const ModelRequest asked{false, "a", {"profile of a", "profile of b"}};
  EXPECT_EQ(SummaryOf({comparison, sides_, request_, asked}).back(),
            "Plans of a: 1 that another side plans differently and 0 that cannot be forced; 0 "
            "measured there");
  const std::string text = TextOf({comparison, sides_, request_, asked});
  EXPECT_NE(text.find("with the plans of a"), std::string::npos);
  EXPECT_NE(text.find(", modelled |"), std::string::npos) << text;
  const json cell = ComparisonJson({comparison, sides_, request_, asked})["cells"][0];
  EXPECT_EQ(cell["second_forced"]["gain_mode"], "modelled");
  EXPECT_EQ(cell["second_forced"]["units"], "3,40");
  EXPECT_EQ(cell["first_forced"]["own"], true);
}

}  // namespace
}  // namespace sparfuse::harness
