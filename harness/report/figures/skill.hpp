// Judges predictions of published numbers beside formulas and predictors that need no model: a
// model has skill where it is nearer than they are.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/figures/grouped_bars.hpp"
#include "harness/report/figures/published_rows.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

inline constexpr const char* kModel = "the model";
// A step's computation and wire: all of the shorter hidden, and nothing hidden.
inline constexpr const char* kLongest = "the longer of computation and wire";
inline constexpr const char* kSum = "computation and wire added up";
inline constexpr const char* kNoGain = "no gain";
inline constexpr const char* kFirst = "the published one of the figure's first number";

// One published number, and each predictor's value for it.
struct Prediction {
  std::string setting;  // equal for all methods of one setting
  double theirs = 0;
  std::vector<std::pair<std::string, double>> by;  // by predictor
  bool calibrated = false;                         // whether a cluster was fitted to it
  std::map<std::string, std::string> strata;       // "cluster", "workload", "workers", "method"

  // The predictor's value; null without one.
  const double* By(std::string_view predictor) const;
};

// The predictions of a figure of kind "agreement" with published numbers, whose entry has its pairs
// (harness/report/agreement.hpp).
std::vector<Prediction> AgreementPredictions(const nlohmann::json& figure,
                                             const PartResult& result);

// The predictions of published ratios beside a figure's `bars`. Empty unless these are ratios, and
// its cells model the paper's machines.
std::vector<Prediction> RatioPredictions(const nlohmann::json& figure, const PartResult& result,
                                         const PublishedRows& published, const GroupedBars& bars);

// Those that the figure's first number predicts, too; empty if it predicts all.
std::vector<Prediction> BeyondFirst(const std::vector<Prediction>& predictions);

// A row a predictor: {name, n, median, 90th percentile, too high, pairs in order, nearest}. Only a
// predictor of every number can be the nearest.
std::vector<std::vector<std::string>> SkillRows(const std::vector<Prediction>& predictions);

// The table of a figure's predictors, by heading; calibration inputs are left out.
GroupedTable SkillTable(const std::vector<std::pair<std::string, std::vector<Prediction>>>& groups);

// The predictions of one figure among those of all testbeds.
struct TestbedPredictions {
  std::string testbed, figure;
  std::vector<Prediction> predictions;
};
// Those of an experiment's figures that have some. `results`: of its parts.
std::vector<TestbedPredictions> PredictionsIn(const Experiment& experiment,
                                              const std::vector<PartResult>& results,
                                              const Catalog& catalog);
// One table of all. Calibration inputs have rows of their own; so have numbers that the figure's
// first number predicts, too.
GroupedTable TestbedTable(const std::vector<TestbedPredictions>& found);

}  // namespace sparfuse::harness
