// Records a training trial step by step, makes its metrics and writes its series.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/timeline.hpp"
#include "harness/records/trial.hpp"

namespace sparfuse::harness {

struct LoggedStep {
  std::int64_t step = 0;
  bool measured = false;
  double loss = 0;
  StepRecord record;
  std::int32_t round = 0;  // of trials that take turns, from 1; 0: warm-up, and all other trials
  double loader_wait_seconds = 0;  // for prepared data
};

// [ranks][steps]; all ranks have the same steps.
using StepLog = std::vector<std::vector<LoggedStep>>;

struct StepLogContext {
  double dense_elements = 0;  // of the layout: the denominator of achieved density
  double units_per_step = 0;  // workers * batch * accumulation * units per sample
  std::string unit;           // of throughput
  bool knows_missing = true;  // false if tensors_missing is unknown (modelled)
  int every = 1;              // steps of a window (CellConfig::window_steps)
};

// The metrics of docs/metrics.md over the measured steps, or over their whole windows if there are
// any. step_seconds is the median over windows of the maximum over ranks of a window's mean. The
// breakdown is the slowest rank's.
MetricValues MetricsOf(const StepLog& log, const StepLogContext& context);

// Mean over ranks of the bytes that a rank sent in all steps before this one.
double SentBytesBefore(const StepLog& log, double step);

// Of each round the median over its measured windows of step_seconds, the slowest rank's; empty
// if there are no rounds.
std::vector<double> RoundSeconds(const StepLog& log, int every = 1);

// Writes steps.npy and adds its description in trial.json to `series` (docs/results-format.md).
void WriteSteps(const std::filesystem::path& directory, const StepLog& log,
                const StepLogContext& context, SeriesByFile& series);

// The unit of a column of steps.npy; "" for a column of numbers without a unit. Nothing for a
// column that WriteSteps does not write.
std::optional<std::string> UnitOfStepColumn(std::string_view column);

// Reads a rank's step back from the values of its columns; a missing column is 0.
LoggedStep LoggedStepOf(const std::function<double(const char* column)>& value);

struct TracedStep {
  std::int64_t step = 0;
  std::vector<std::vector<Span>> by_rank;
  // When each rank's step began, all by one clock; empty: all at once.
  std::vector<double> began_seconds = {};
  // The possible error of a rank's begin relative to other ranks.
  double clock_uncertainty_seconds = 0;
};

// Writes spans.npy, and trace.json of the last traced step, or window of `every` steps, with all
// ranks side by side. If the clocks cannot order exchanges (the uncertainty is at least half of the
// shortest exchange), each rank has a trace of its own, trace-rankR.json.
void WriteSpans(const std::filesystem::path& directory, std::span<const TracedStep> steps,
                SeriesByFile& series, int every = 1);

}  // namespace sparfuse::harness
