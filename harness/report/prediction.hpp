// Compares the model's step times with emulated or measured ones.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// The largest median error of the model that is accepted, on cells that are not oversubscribed.
inline constexpr double kMayBeOff = 0.15;

struct PredictedCell {
  const Cell* cell = nullptr;          // the live one
  std::size_t position = 0, twin = 0;  // of the two cells in their parts
  Interval live;                       // step_seconds
  double predicted = 0;
  bool oversubscribed = false;  // workers times threads exceed the cores
  // By two formulas, without the model: the longer of the first rank's computation and the time on
  // links, and their sum; none if the predicted trial lacks them.
  std::optional<double> longest, sum;
  double error() const { return predicted / live.value - 1; }
  bool within_interval() const { return live.low <= predicted && predicted <= live.high; }
};

struct PredictionSummary {
  std::vector<PredictedCell> cells;    // that both engines ran
  std::optional<double> median_error;  // of |error|, cells that are not oversubscribed
  std::optional<double> oversubscribed_median_error;
  // The same of the formulas, cells that are not oversubscribed.
  std::optional<double> longest_median_error, sum_median_error;
  // Pairs of methods of the same setting, not oversubscribed, whose live intervals do not overlap;
  // and how many of them the model puts in the same order.
  std::size_t ordered_pairs = 0, agreeing_pairs = 0;
};

// twins: the results of PredictedPart(*live.part). `shown`: positions of the live cells to look at;
// null: all.
PredictionSummary ComparePrediction(const PartResult& live, const PartResult& twins,
                                    const std::set<std::size_t>* shown = nullptr);

}  // namespace sparfuse::harness
