// Compares absolute predictions with a paper's measurements on the modelled machines, sums up their
// errors in tables (a figure of kind "agreement"), and compares them with formulas and with
// predictors that need no model. A model has skill if it is nearer than they are.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/figures/grouped_bars.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/results.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// The quantile, by straight lines between the sorted values. Precondition: values is not empty.
double QuantileOf(std::vector<double> values, double part);

// {"pairs": [{cell, theirs, error, unit, calibrated}], "median_error": "2.1 %" or null if no pair
// counts, "counted", "tables": [{columns, groups: [[heading, rows]], notes}]}. A pair is a cell of
// the figure, by its position, and its published number. `error` is ours / theirs - 1. Pairs to
// which a cluster was fitted (`calibration`, as in an experiment) are marked, and count only in the
// order of methods. It is JSON, because it is a part of the figure's entry.
nlohmann::json AgreementOf(const nlohmann::json& figure, const PartResult& result,
                           const std::vector<std::string>& calibration, const Catalog& catalog);

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
// (AgreementOf).
std::vector<Prediction> AgreementPredictions(const nlohmann::json& figure,
                                             const PartResult& result);

// The predictions of published ratios beside a figure's `bars`. Empty unless these are ratios, and
// its cells model the paper's machines.
std::vector<Prediction> RatioPredictions(const nlohmann::json& figure, const PartResult& result,
                                         const PublishedRows& published, const GroupedBars& bars);

// The predictions of the numbers that the predictor "first" also predicts; empty if it predicts
// all.
std::vector<Prediction> BeyondFirst(const std::vector<Prediction>& predictions);

// A row a predictor: {name, n, median, 90th percentile, too high, pairs in order, nearest}. Only a
// predictor of every number can be the nearest.
std::vector<std::vector<std::string>> SkillRows(const std::vector<Prediction>& predictions);

// The table of a figure's predictors, by heading; calibration inputs are left out.
GroupedTable SkillTable(const std::vector<std::pair<std::string, std::vector<Prediction>>>& groups);

// The predictions of one figure, in the list of all testbeds.
struct TestbedPredictions {
  std::string testbed, figure;
  std::vector<Prediction> predictions;
};
// The predictions of those figures of an experiment that have some. `results`: of its parts.
std::vector<TestbedPredictions> PredictionsIn(const Experiment& experiment,
                                              const std::vector<PartResult>& results,
                                              const Catalog& catalog);
// What a table of skill is asked for, as typed.
struct SkillRequest {
  std::string by;                                            // also each value of this key; or ""
  std::vector<std::pair<std::string, std::string>> without;  // keys and values that are left out
};
// The keys of a prediction's strata.
std::span<const char* const> SkillStrata();
// One table of all, and of several testbeds all numbers together. Calibration inputs have rows of
// their own; so have numbers that the figure's first number predicts, too.
GroupedTable TestbedTable(std::vector<TestbedPredictions> found, const SkillRequest& asked = {});

}  // namespace sparfuse::harness
