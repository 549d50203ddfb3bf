#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/stated.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// "" or the first of these metrics that the trial has.
template <class Names>
std::string WhatMetricIsThere(const Trial& trial, const Names& names, const std::string& of) {
  for (const char* name : names) {
    if (trial.metrics.contains(name))
      return fmt::format("metrics.{}: expected none of {}", name, of);
  }
  return "";
}

// "" or a row of a column with a number that differs from `expected`.
std::string WhatIsNotAll(const OpenSeries& steps, const char* column, double expected,
                         const char* of) {
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const std::optional<double> value = steps.Number(column, row);
    if (!value || *value == expected) continue;
    return fmt::format("steps.npy: {} = {} in row {}: expected {} of {}", column, *value, row,
                       expected, of);
  }
  return "";
}

std::string WhatModelContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  constexpr const char* kOfModel = "a modelled trial";
  if (TextOf(trial.config, "cluster").empty())
    return "config.cluster: null in mode modelled: expected the cluster that was modelled";
  if (trial.quiet) return "quiet: expected no readings of a machine in a modelled trial";
  if (trial.launch) return "launch: expected none of a modelled trial";
  if (!trial.checks.empty())
    return fmt::format("checks.{}: expected none of a modelled trial", trial.checks.begin()->first);
  constexpr const char* kOfTraining[] = {"loss",       "residual_norm", "tensors_missing",
                                         "final_loss", "final_metric",  "loader_wait_seconds"};
  std::string wrong = WhatMetricIsThere(trial, kOfTraining, kOfModel);
  const auto steps = series.find("steps.npy");
  if (!wrong.empty() || steps == series.end()) return wrong;
  for (const auto& [column, expected] :
       {std::pair("loss", 0.0), {"residual_norm", 0.0}, {"measured", 1.0}}) {
    if (wrong.empty()) wrong = WhatIsNotAll(steps->second, column, expected, kOfModel);
  }
  return wrong;
}

// A workload that sleeps has no losses, and one that the catalogue lacks may have none.
bool HasLosses(const Trial& trial) {
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  return workload != nullptr && !workload->sleeps;
}

std::string WhatRunContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  const std::string mode = TextOf(trial.config, "mode"), of = "mode " + mode;
  if (const std::string cluster = TextOf(trial.config, "cluster"); !cluster.empty())
    return fmt::format("config.cluster: {} in mode {}: expected null", cluster, mode);
  if (!trial.draws.empty())
    return fmt::format("draws.{}: expected none in mode {}", trial.draws.begin()->first, mode);
  constexpr const char* kOfModels[] = {"local_seconds", "wire_seconds", "step_uncertainty"};
  if (std::string wrong = WhatMetricIsThere(trial, kOfModels, of); !wrong.empty()) return wrong;
  const auto steps = series.find("steps.npy");
  if (steps == series.end()) return "";  // counted as a trial without steps
  if (!trial.machine)
    return fmt::format("machine: expected the machine of a trial in mode {}", mode);
  if (!trial.checks.contains("loss_finite"))
    return fmt::format("checks: expected loss_finite in mode {}", mode);
  if (!HasLosses(trial)) return "";
  const OpenSeries& rows = steps->second;
  for (std::uint64_t row = 0; row < rows.header.rows; ++row) {
    if (rows.Number("loss", row).value_or(1) != 0) return "";
  }
  return rows.header.rows == 0
             ? ""
             : fmt::format("steps.npy: loss = 0 in every row: expected losses in mode {}", mode);
}

std::string WhatEvaluatingContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  const auto every = trial.config.find("evaluate_every");
  if (every == trial.config.end()) return "";
  const auto found = series.find("evaluations.npy");
  const bool has_some = found != series.end() && found->second.header.rows > 0;
  if (every->is_number()) {
    if (TextOf(trial.config, "kind") != NameOf(TrialKind::kConvergence))
      return fmt::format("config.evaluate_every: {} in kind {}: expected null", every->dump(),
                         TextOf(trial.config, "kind"));
    if (!series.contains("steps.npy")) return "";  // counted as a trial without steps
    if (!has_some) return "evaluations.npy: expected evaluations in kind convergence";
    for (const char* metric : {"final_metric", "final_loss"}) {
      if (!trial.metrics.contains(metric))
        return fmt::format("metrics: expected {} in kind convergence", metric);
    }
    return "";
  }
  if (TextOf(trial.config, "kind") == NameOf(TrialKind::kConvergence))
    return "config.evaluate_every: null in kind convergence: expected a number of steps";
  if (has_some) return "evaluations.npy: expected no evaluations without config.evaluate_every";
  constexpr const char* kOfEvaluations[] = {"final_metric", "final_loss", "steps_to_target",
                                            "seconds_to_target", "epochs_to_target"};
  return WhatMetricIsThere(trial, kOfEvaluations, "kind " + TextOf(trial.config, "kind"));
}

}  // namespace

std::string WhatKindContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  // Precondition of all that follows: whole cells.
  if (!trial.config.contains("method_options")) return "";
  const bool modelled = TextOf(trial.config, "mode") == NameOf(Mode::kModelled);
  std::string wrong = modelled        ? WhatModelContradicts(trial, series)
                      : IsLive(trial) ? WhatRunContradicts(trial, series)
                                      : "";
  return wrong.empty() ? WhatEvaluatingContradicts(trial, series) : wrong;
}

}  // namespace sparfuse::harness
