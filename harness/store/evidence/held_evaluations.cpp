#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/stated.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

std::string Wrong(const char* column, double said, std::uint64_t row, const std::string& expected) {
  return fmt::format("evaluations.npy: {} = {} in row {}: expected {}", column, said, row,
                     expected);
}

double ValueIn(const OpenSeries& series, const char* column, std::uint64_t row) {
  return series.Number(column, row).value_or(0);
}

// Seconds of rank 0 until the end of each step; the first is 0.
std::vector<double> EndsOfSteps(const Trial& trial, const OpenSeries& steps) {
  std::vector<double> until = {0};
  const bool waits = TextOf(trial.config, "device") == "cuda";
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    if (ValueIn(steps, "rank", row) != 0) continue;
    const double waited = waits ? ValueIn(steps, "loader_wait_seconds", row) : 0;
    until.push_back(until.back() + ValueIn(steps, "step_seconds", row) + waited);
  }
  return until;
}

// A cell is evaluated after every so many steps, and after its last one.
std::string WhatDatesContradict(const Trial& trial, const OpenSeries& evaluations,
                                std::size_t steps) {
  const double every = NumberOf(trial.config, "evaluate_every");
  if (every < 1) return "";
  const double last = NumberOf(trial.config, "warmup_steps") + NumberOf(trial.config, "steps");
  std::uint64_t row = 0;
  for (std::size_t step = 1; step <= steps; ++step) {
    const auto at = static_cast<double>(step);
    if (std::fmod(at, every) != 0 && at != last) continue;
    if (row == evaluations.header.rows)
      return fmt::format(
          "evaluations.npy: {} rows: expected one of step {}, by "
          "config.evaluate_every = {}",
          row, step, every);
    if (const double said = ValueIn(evaluations, "step", row); said != at)
      return Wrong("step", said, row,
                   fmt::format("{}, by config.evaluate_every = {}", step, every));
    ++row;
  }
  if (row == evaluations.header.rows) return "";
  return Wrong("step", ValueIn(evaluations, "step", row), row, "no such row");
}

// Training ends at the first evaluation that reaches the target.
std::string WhatTargetContradicts(const Trial& trial, const OpenSeries& evaluations) {
  const auto target = trial.config.find("target");
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  if (target == trial.config.end() || !trial.config.contains("evaluate_every")) return "";
  const bool stated = trial.metrics.contains("steps_to_target");
  if (!target->is_number()) return stated ? "steps_to_target: stated without config.target" : "";
  if (workload == nullptr) return "";
  const double wanted = target->get<double>();
  const std::uint64_t rows = evaluations.header.rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const double metric = ValueIn(evaluations, "metric", row);
    const bool reached = workload->higher_is_better ? metric >= wanted : metric <= wanted;
    if (reached == (stated && row + 1 == rows)) continue;
    return Wrong(
        "metric", metric, row,
        fmt::format("{} {}, since {}",
                    workload->higher_is_better == reached ? "less than" : "more than", wanted,
                    reached ? "training goes on after it, or metrics lack steps_to_target"
                            : "metrics have steps_to_target"));
  }
  return "";
}

// The epochs and samples of each evaluation are those of the steps until then, with the same number
// of steps in every epoch. That number is of the cell's batch: data of N samples have N over the
// samples of a step, rounded down or up.
std::string WhatEpochsContradict(const Trial& trial, const OpenSeries& evaluations) {
  constexpr double kRounded = 0.51, kWhole = 1e-6;
  if (!TellsBatch(evaluations)) return "";
  const double first_step = ValueIn(evaluations, "step", 0),
               first_epoch = ValueIn(evaluations, "epoch", 0);
  const double per_epoch = first_step / first_epoch;
  double least = 0, most = std::numeric_limits<double>::infinity();  // samples of the data
  const bool has_samples = evaluations.header.Find("samples") != nullptr;
  for (std::uint64_t row = 0; row < evaluations.header.rows; ++row) {
    const double step = ValueIn(evaluations, "step", row);
    const double epoch = ValueIn(evaluations, "epoch", row);
    if (!AreEqual(epoch * first_step, first_epoch * step))
      return Wrong("epoch", epoch, row,
                   fmt::format("{}, as in row 0", first_epoch * step / first_step));
    if (!has_samples) continue;
    const double samples = ValueIn(evaluations, "samples", row);
    const double said_least = std::max(0.0, samples - kRounded) * per_epoch / step;
    const double said_most = (samples + kRounded) * per_epoch / step;
    if (said_least > most || said_most < least)
      return Wrong("samples", samples, row,
                   fmt::format("{:.0f}, as in the rows before it", least * step / per_epoch));
    least = std::max(least, said_least);
    most = std::min(most, said_most);
  }
  if (!trial.config.contains("evaluate_every")) return "";
  const double steps = std::round(per_epoch);
  if (steps < 1 || std::abs(per_epoch - steps) > kWhole * steps)
    return Wrong("epoch", first_epoch, 0, "a whole number of steps in an epoch");
  const double ranks = NumberOf(trial.config, "workers") * NumberOf(trial.config, "accumulation");
  const double of_step = ranks * NumberOf(trial.config, "batch_per_worker");
  if (!has_samples || of_step <= 0) return "";
  // A sampler that wraps fills up what the ranks share.
  const double fewest = std::floor(least / of_step), many = std::ceil((most + ranks) / of_step);
  if (steps >= fewest && steps <= many) return "";
  return fmt::format(
      "evaluations.npy: epoch = {} in row 0: {} steps of {} samples by config in an epoch of "
      "{:.0f}",
      first_epoch, steps, of_step, least);
}

// Evaluations are at the ends of steps, and their times are sums of rank 0's step times.
std::string WhatMomentsContradict(const OpenSeries& evaluations, const std::vector<double>& until) {
  const auto has = [&](const char* column) { return evaluations.header.Find(column) != nullptr; };
  double last_step = 0, evaluating = 0;
  for (std::uint64_t row = 0; row < evaluations.header.rows; ++row) {
    const auto value = [&](const char* column) { return ValueIn(evaluations, column, row); };
    const double step = value("step");
    if (step <= last_step || step >= static_cast<double>(until.size()))
      return Wrong("step", step, row,
                   fmt::format("a step after {:g}, at most {}", last_step, until.size() - 1));
    last_step = step;
    const double seconds = until[static_cast<std::size_t>(step)];
    if (has("seconds") && !AreEqual(value("seconds"), seconds))
      return Wrong("seconds", value("seconds"), row, fmt::format("{}, of its steps", seconds));
    if (!has("seconds_with_evaluation")) continue;
    const double took = value("seconds_with_evaluation") - value("seconds");
    if (took < evaluating - 1e-9 * seconds)
      return Wrong("seconds_with_evaluation", value("seconds_with_evaluation"), row,
                   fmt::format("at least {}", value("seconds") + evaluating));
    evaluating = took;
  }
  return "";
}

}  // namespace

bool TellsBatch(const OpenSeries& evaluations) {
  return evaluations.header.rows > 0 && ValueIn(evaluations, "epoch", 0) > 0 &&
         ValueIn(evaluations, "step", 0) > 0;
}

std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& evaluations,
                                      const OpenSeries& steps) {
  const std::vector<double> until = EndsOfSteps(trial, steps);
  std::string wrong = WhatMomentsContradict(evaluations, until);
  if (wrong.empty()) wrong = WhatDatesContradict(trial, evaluations, until.size() - 1);
  if (wrong.empty()) wrong = WhatTargetContradicts(trial, evaluations);
  return wrong.empty() ? WhatEpochsContradict(trial, evaluations) : wrong;
}

}  // namespace sparfuse::harness
