// Tests the epochs and times that training needs to reach targets, on curves with known crossings.
#include "harness/report/time_to_target.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "harness/files/npy.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;
using Curve = std::vector<double>;  // the metric after each epoch

TEST(Crossing, IsTheFirstEvaluationAtOrPastTheTarget) {
  const std::vector<Evaluated> rising = {{.step = 1, .epoch = 1, .metric = 0.5},
                                         {.step = 2, .epoch = 2, .metric = 0.7},
                                         {.step = 3, .epoch = 3, .metric = 0.6}};
  EXPECT_EQ(CrossingOf(rising, 0.6, true).at.epoch, 2);
  EXPECT_EQ(CrossingOf(rising, 0.7, true).at.epoch, 2);  // equal to the target
  EXPECT_FALSE(CrossingOf(rising, 0.71, true).reached);
  EXPECT_EQ(CrossingOf(rising, 0.71, true).at.epoch, 3);  // censored at the curve's end
  EXPECT_EQ(CrossingOf(rising, 0.5, false).at.epoch, 1);
  EXPECT_FALSE(CrossingOf(rising, 0.4, false).reached);
}

TEST(Crossing, IsSummedUpByAnOlympicMeanFromFiveOn) {
  EXPECT_EQ(TypicalText({}), "–");
  EXPECT_EQ(TypicalText({3}), "3");
  EXPECT_EQ(TypicalText({4, 1, 2}), "2 [1, 4]");
  EXPECT_EQ(TypicalText({100, 1, 2, 3, 4}), "3 [1, 100]");
}

class TimeToTarget : public ::testing::Test {
 protected:
  // Adds runs of a method, one a block; an epoch takes `seconds`.
  void Add(const std::string& method, double seconds, const std::vector<Curve>& curves) {
    CellResult result;
    result.cell = &CellOf(method);
    for (std::size_t block = 0; block < curves.size(); ++block) {
      TrialRow& row = trials_.emplace_back();
      row.directory = method + std::to_string(block);
      Write(folder_.path() / std::string(row.directory), seconds, curves[block]);
      result.trials[static_cast<int>(block)] = &row;
    }
    results_[0].cells.push_back(result);
  }

  // Adds the modelled step time of a method on a cluster.
  void Model(const std::string& method, double step_seconds) {
    CellResult result;
    Cell& cell = CellOf(method);
    cell.config.kind = TrialKind::kThroughput;
    cell.config.cluster = "far";
    result.cell = &cell;
    TrialRow& row = trials_.emplace_back();
    row.metrics = {{"step_seconds", step_seconds}};
    result.trials[0] = &row;
    results_[1].cells.push_back(result);
  }

  json Found(const std::vector<double>& targets) {
    json cells = json::array();
    for (std::size_t i = 0; i < results_[0].cells.size(); ++i) cells.push_back(i);
    parts_[1].id = "far-away";
    results_[0].part = &parts_[0];
    results_[1].part = &parts_[1];
    figure_ = {{"kind", "time_to_target"},
               {"targets", targets},
               {"modelled", "far-away"},
               {"cells", std::move(cells)}};
    return TimeToTargetOf(figure_, results_, 0, folder_.path());
  }
  static Rows RowsIn(const json& found, std::size_t table = 0, std::size_t group = 0) {
    return found["tables"][table]["groups"][group][1].get<Rows>();
  }

  TemporaryFolder folder_;
  std::deque<Cell> cells_;
  std::deque<TrialRow> trials_;
  Part parts_[2];
  std::vector<PartResult> results_{2};
  json figure_;

 private:
  Cell& CellOf(const std::string& method) {
    Cell& cell = cells_.emplace_back();
    cell.config.method = cell.label = method;
    cell.config.workload = "digits-resnet";
    cell.config.workers = 4;
    cell.config.kind = TrialKind::kConvergence;
    return cell;
  }

  static void Write(const std::filesystem::path& directory, double seconds, const Curve& curve) {
    std::filesystem::create_directories(directory);
    std::vector<std::int64_t> steps;
    std::vector<double> epochs, times;
    for (std::size_t i = 1; i <= curve.size(); ++i) {
      steps.push_back(static_cast<std::int64_t>(10 * i));
      epochs.push_back(static_cast<double>(i));
      times.push_back(seconds * static_cast<double>(i));
    }
    NpyTable table("every evaluation");
    table.AddColumn("step", "", steps);
    table.AddColumn("epoch", "epochs", epochs);
    table.AddColumn("seconds", "seconds", times);
    table.AddColumn("metric", "accuracy", curve);
    table.AddColumn("loss", "nats", times);
    table.Write(directory / "evaluations.npy");
  }
};

TEST_F(TimeToTarget, RatiosOfEpochsAndOfSecondsAnEpochMultiplyOut) {
  Add("dense", 8, {{.5, .7, .9}, {.5, .7, .9}, {.5, .7, .9}});
  Add("wfbp", 2, {{.5, .6, .7, .9}, {.5, .6, .7, .9}, {.5, .6, .7, .9}});
  const Rows rows = RowsIn(Found({0.7}));
  EXPECT_EQ(rows[0], (std::vector<std::string>{"dense", "3 of 3", "2 [2, 2]", "16 [16, 16]", "–",
                                               "–", "–", "0.9 [0.9, 0.9]"}));
  EXPECT_EQ(rows[1][2], "3 [3, 3]");
  EXPECT_EQ(rows[1][4], "1.50x [1.50, 1.50]");
  EXPECT_EQ(rows[1][5], "0.25x [0.25, 0.25]");
  EXPECT_EQ(rows[1][6], "0.38x [0.38, 0.38]");
}

TEST_F(TimeToTarget, RunsThatNeverCameThereLeaveABound) {
  Add("dense", 1, {{.5, .9, .9, .9}, {.5, .9, .9, .9}, {.5, .9, .9, .9}});
  Add("wfbp", 1, {{.5, .6, .9, .9}, {.5, .6, .7, .8}, {.5, .6, .9, .9}});
  const Rows rows = RowsIn(Found({0.9}));
  EXPECT_EQ(rows[1][1], "2 of 3");
  EXPECT_EQ(rows[1][4], "> 1.65x");  // (3/2 * 4/2 * 3/2)^(1/3)
  const Rows open = RowsIn(Found({0.95}));
  EXPECT_EQ(open[1][4], "–");  // neither side reached it
  EXPECT_EQ(open[1][2], "–");
}

TEST_F(TimeToTarget, TwoPairsAreNoRatio) {
  Add("dense", 1, {{.5, .9}, {.5, .9}});
  Add("wfbp", 1, {{.5, .9}, {.5, .9}});
  EXPECT_EQ(RowsIn(Found({0.9}))[1][4], "–");
}

TEST_F(TimeToTarget, SignificantlyFewerEpochsThanDenseAreMarked) {
  Add("dense", 1, {{.1, .2, .9}, {.1, .2, .9}, {.1, .2, .2, .9}});
  Add("fast", 1, {{.1, .9, .9}, {.1, .9, .9}, {.1, .9, .9}});
  Add("lucky", 1, {{.9, .9, .9}, {.1, .1, .1, .9}, {.1, .1, .9}});
  const json found = Found({0.9});
  EXPECT_EQ(RowsIn(found)[1][0], "fast *");
  EXPECT_EQ(RowsIn(found)[2][0], "lucky");
  EXPECT_EQ(found["rows"][1]["flagged"], true);
}

TEST_F(TimeToTarget, SecondsElsewhereAreEpochsTimesModelledSteps) {
  Add("dense", 1, {{.5, .9}, {.5, .9}, {.5, .9}});
  Add("wfbp", 1, {{.5, .6, .9}, {.5, .6, .9}, {.5, .6, .9}});
  Model("dense", 0.4);
  Model("wfbp", 0.1);
  const json found = Found({0.9});
  ASSERT_EQ(found["tables"].size(), 2u);
  const Rows rows = RowsIn(found, 1);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"dense", "far", "4", "8 [8, 8]", "–"}));
  EXPECT_EQ(rows[1],
            (std::vector<std::string>{"wfbp", "far", "1", "3 [3, 3]", "0.38x [0.38, 0.38]"}));
}

TEST_F(TimeToTarget, TimesOfDisturbedRunsDoNotCountAndTheirEpochsDo) {
  Add("dense", 1, {{.5, .9}, {.5, .9}, {.5, .9}});
  results_[0].cells[0].disturbed = {0, 1, 2};
  EXPECT_EQ(RowsIn(Found({0.9}))[0][2], "2 [2, 2]");
  EXPECT_EQ(RowsIn(Found({0.9}))[0][3], "–");
  results_[0].cells[0].disturbed_trials = DisturbedTrials::kCount;
  EXPECT_EQ(RowsIn(Found({0.9}))[0][3], "2 [2, 2]");
}

}  // namespace
}  // namespace sparfuse::harness
