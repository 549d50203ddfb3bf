#include "harness/store/evidence/recomputed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/store/step_log.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

constexpr double kMostRelative = 1e-9;

bool AreEqual(double a, double b) {
  return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b));
}

// A series that is open for reading.
struct OpenSeries {
  std::string_view bytes;
  SeriesHeader header;

  std::optional<double> Number(const char* column, std::uint64_t row) const {
    const SeriesColumn* of = header.Find(column);
    if (of == nullptr || of->type.starts_with("<U")) return std::nullopt;
    return NumberIn(bytes, header, *of, row);
  }
};

// Nothing if the trial has no such file, or one that is no series.
std::optional<OpenSeries> Open(const std::map<std::string, std::string>& files, const char* name) {
  const auto found = files.find(name);
  OpenSeries open;
  if (found == files.end() || !WhatIsWrongWithSeries(name, found->second, &open.header).empty())
    return std::nullopt;
  open.bytes = found->second;
  return open;
}

// Of the steps in a file; empty if ranks do not have the same steps.
StepLog LogIn(const OpenSeries& series) {
  std::map<std::string_view, const SeriesColumn*> columns;  // a model has thousands of ranks
  for (const SeriesColumn& column : series.header.columns) columns[column.name] = &column;
  std::map<double, std::vector<LoggedStep>> ranks;
  for (std::uint64_t row = 0; row < series.header.rows; ++row) {
    const auto value = [&](const char* name) {
      const auto found = columns.find(name);
      return found == columns.end() ? 0.0
                                    : NumberIn(series.bytes, series.header, *found->second, row);
    };
    ranks[value("rank")].push_back(LoggedStepOf(value));
  }
  StepLog log;
  for (auto& [rank, steps] : ranks) log.push_back(std::move(steps));
  const bool alike = std::ranges::all_of(log, [&](const std::vector<LoggedStep>& steps) {
    return std::ranges::equal(steps, log.front(), [](const LoggedStep& a, const LoggedStep& b) {
      return a.step == b.step && a.measured == b.measured && a.round == b.round;
    });
  });
  return alike ? log : StepLog();
}

double NumberOf(const json& config, const char* key) {
  const json value = config.value(key, json());
  return value.is_number() ? value.get<double>() : 0;
}

// Null for a workload that the catalogue does not have.
const workloads::WorkloadDescriptor* WorkloadOf(const json& config) {
  try {
    const json name = config.value("workload", json());
    return name.is_string() ? &workloads::FindWorkload(name.get<std::string>()) : nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

// A throughput is what a step processes, a whole number of units a sample, over its time.
std::string WhatIsWrongWithThroughput(const Trial& trial, const MetricValue& throughput,
                                      double step_seconds) {
  constexpr double kMostUnits = 1e6;
  const json& config = trial.config;
  const double samples = NumberOf(config, "workers") * NumberOf(config, "batch_per_worker") *
                         NumberOf(config, "accumulation");
  if (samples <= 0) return "";
  const double units = *throughput.value * step_seconds / samples;
  if (const workloads::WorkloadDescriptor* known = WorkloadOf(config)) {
    const auto expected = static_cast<double>(known->units_per_sample);
    if (!AreEqual(units, expected)) {
      return fmt::format(
          "throughput: {} makes {:g} units a sample over its steps' time: expected {:g}",
          *throughput.value, units, expected);
    }
    if (!throughput.unit.empty() && throughput.unit != known->unit + "/s") {
      return fmt::format("throughput: its unit is {}: expected {}/s of {}", throughput.unit,
                         known->unit, known->name);
    }
    return "";
  }
  if (units > 0.5 && units < kMostUnits && AreEqual(units, std::round(units))) return "";
  return fmt::format("throughput: {} is no whole number of units a sample over its steps' time",
                     *throughput.value);
}

std::string SaidAndGiven(const std::string& name, const json& stored, const json& given,
                         const char* by = "its steps give") {
  return fmt::format("{}: trial.json has {}, {} {}", name, stored.dump(), by, given.dump());
}

// Elements of the model: those of the layout, else those that the density of a measured step is of.
// 0 if neither says it.
double DenseElements(const Trial& trial, const OpenSeries& steps) {
  double elements = 0;
  for (const LayoutTensor& tensor : trial.layout) elements += static_cast<double>(tensor.numel);
  for (std::uint64_t row = 0; row < steps.header.rows && elements == 0; ++row) {
    const double density = steps.Number("achieved_density", row).value_or(0);
    if (density > 0) elements = steps.Number("selected", row).value_or(0) / density;
  }
  return elements;
}

// What the metrics say of evaluations, against evaluations.npy. Takes those that it has looked at
// out of `open`.
std::string WhatEvaluationsContradict(const Trial& trial,
                                      const std::map<std::string, std::string>& files,
                                      std::set<std::string>& open) {
  const std::optional<OpenSeries> series = Open(files, "evaluations.npy");
  if (!series || series->header.rows == 0) return "";
  const std::uint64_t rows = series->header.rows;
  const auto stated = [&](const char* name) {
    const auto metric = trial.metrics.find(name);
    return metric == trial.metrics.end() ? std::nullopt : metric->second.value;
  };
  for (const SeriesColumn& column : series->header.columns) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      if (std::isfinite(series->Number(column.name.c_str(), row).value_or(0))) continue;
      return fmt::format("evaluations.npy: {} in row {}: expected a number", column.name, row);
    }
  }
  // Training ends when the target is reached, so that it is the last evaluation that reached it.
  for (const auto& [name, column] :
       {std::pair("final_metric", "metric"),
        {"final_loss", "loss"},
        {"steps_to_target", "step"},
        {"seconds_to_target", "seconds"},
        {"seconds_to_target_with_evaluation", "seconds_with_evaluation"},
        {"epochs_to_target", "epoch"},
        {"samples_to_target", "samples"}}) {
    const std::optional<double> said = stated(name), last = series->Number(column, rows - 1);
    if (!said) continue;
    if (!last || !AreEqual(*said, *last))
      return SaidAndGiven(name, *said, last ? json(*last) : json(), "its evaluations give");
    open.erase(name);
  }
  const json target = trial.config.value("target", json());
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  const std::optional<double> last = series->Number("metric", rows - 1);
  if (!stated("steps_to_target") || !target.is_number() || workload == nullptr || !last) return "";
  const double wanted = target.get<double>();
  if (workload->higher_is_better ? *last >= wanted : *last <= wanted) return "";
  return fmt::format("steps_to_target: the last evaluation gives {:g}: expected a {} of at {} {:g}",
                     *last, workload->metric, workload->higher_is_better ? "least" : "most",
                     wanted);
}

// A measured step took time, and all that is counted of it is a number.
std::string WhatIsWrongWithSteps(const OpenSeries& series) {
  const SeriesColumn& measured = *series.header.Find("measured");
  for (std::uint64_t row = 0; row < series.header.rows; ++row) {
    if (NumberIn(series.bytes, series.header, measured, row) == 0) continue;
    for (const SeriesColumn& column : series.header.columns) {
      const double number = NumberIn(series.bytes, series.header, column, row);
      const bool is_time = column.name == "step_seconds";
      if (std::isfinite(number) && (!is_time || number > 0)) continue;
      return fmt::format("steps.npy: {} = {} in row {}: expected a {}number", column.name, number,
                         row, is_time ? "positive " : "");
    }
  }
  return "";
}

// "" or a column that the steps of a trial lack.
std::string WhatStepsLack(const OpenSeries& series) {
  for (const auto& [name, type] : {std::pair("step", "<i8"),
                                   {"rank", "<i8"},
                                   {"measured", "|b1"},
                                   {"round", "<i8"},
                                   {"step_seconds", "<f8"}}) {
    const SeriesColumn* column = series.header.Find(name);
    if (column != nullptr && column->type == type) continue;
    return fmt::format("steps.npy: expected a column {} of type {}", name, type);
  }
  return "";
}

std::string WhatStepsContradict(const Trial& trial, const OpenSeries& series, const StepLog& log,
                                std::set<std::string>& open) {
  StepLogContext context;
  context.dense_elements = DenseElements(trial, series);
  const MetricValues computed = MetricsOf(log, context);
  for (const auto& [name, metric] : trial.metrics) {
    const auto given = computed.find(name);
    if (!metric.value || given == computed.end() || name == "throughput") continue;
    if (name == "achieved_density" && context.dense_elements == 0) continue;
    const double of_log = given->second.value.value_or(std::nan(""));
    if (!AreEqual(*metric.value, of_log)) return SaidAndGiven(name, *metric.value, of_log);
    if (!metric.unit.empty() && metric.unit != given->second.unit)
      return SaidAndGiven(name + ".unit", metric.unit, given->second.unit);
    open.erase(name);
  }
  const auto throughput = trial.metrics.find("throughput");
  if (throughput != trial.metrics.end() && throughput->second.value) {
    const std::string wrong = WhatIsWrongWithThroughput(
        trial, throughput->second, computed.at("step_seconds").value.value_or(0));
    if (!wrong.empty()) return wrong;
    open.erase("throughput");
  }
  for (std::uint64_t row = 0; row < series.header.rows && context.dense_elements > 0; ++row) {
    const std::optional<double> density = series.Number("achieved_density", row);
    const double selected = series.Number("selected", row).value_or(0);
    if (!density || AreEqual(*density, selected / context.dense_elements)) continue;
    return fmt::format("steps.npy: achieved_density = {} in row {}: {} of {} elements are selected",
                       *density, row, selected, context.dense_elements);
  }
  const std::vector<double> rounds = RoundSeconds(log);
  if (!std::ranges::equal(trial.rounds, rounds, AreEqual))
    return SaidAndGiven("rounds", trial.rounds, rounds);
  return "";
}

// Sets what the steps say; `made.differs` if they contradict.
void HoldToSteps(const Trial& trial, const OpenSeries& series, std::set<std::string>& open,
                 Recomputed& made) {
  // Those of before turns are of another form, and count as trials without steps.
  if (trial.schema < kTrialSchema && series.header.Find("round") == nullptr) return;
  made.differs = WhatStepsLack(series);
  if (made.differs.empty()) made.differs = WhatIsWrongWithSteps(series);
  if (!made.differs.empty()) return;
  const StepLog log = LogIn(series);
  if (log.empty()) {
    made.differs = "steps.npy: ranks have other steps";
    return;
  }
  StepRange range;
  range.ranks = log.size();
  for (const LoggedStep& step : log.front()) {
    if (!step.measured) continue;
    if (range.measured++ == 0) range.first = step.step;
    range.last = step.step;
  }
  if (range.measured == 0) {
    made.differs = "steps.npy: none of its steps is measured";
    return;
  }
  made.steps = range;
  made.differs = WhatStepsContradict(trial, series, log, open);
}

// What trial.json says of a series that is there, against the file.
std::string WhatSeriesContradict(const Trial& trial,
                                 const std::map<std::string, std::string>& files) {
  for (const auto& [file, series] : trial.series) {
    const auto found = files.find(file);
    SeriesHeader header;
    if (found == files.end() || !WhatIsWrongWithSeries(file, found->second, &header).empty())
      continue;
    if (static_cast<std::uint64_t>(series.rows) != header.rows)
      return SaidAndGiven("series." + file + ".rows", series.rows, header.rows, "the file has");
    for (const auto& [column, unit] : series.units) {
      if (header.Find(column) == nullptr)
        return fmt::format("series.{}.units: {} has no column {}", file, file, column);
    }
  }
  return "";
}

}  // namespace

bool HasNumbers(const Trial& trial) {
  return trial.status == TrialStatus::kOk && !trial.imported &&
         trial.config.value("mode", json()) != kImported;
}

Recomputed RecomputeMetrics(const Trial& trial, const std::map<std::string, std::string>& files) {
  Recomputed made;
  if (!HasNumbers(trial)) return made;
  std::set<std::string> open;  // metrics that nothing was held to yet
  for (const auto& [name, metric] : trial.metrics) {
    if (metric.value) open.insert(name);
  }
  made.differs = WhatSeriesContradict(trial, files);
  if (made.differs.empty()) made.differs = WhatEvaluationsContradict(trial, files, open);
  const std::optional<OpenSeries> steps = Open(files, "steps.npy");
  if (made.differs.empty() && steps) HoldToSteps(trial, *steps, open, made);
  if (!trial.draws.empty()) open.insert("draws");
  made.unchecked.assign(open.begin(), open.end());
  return made;
}

Recomputed RecomputeMetrics(const Trial& trial, const std::filesystem::path& directory) {
  if (!HasNumbers(trial)) return {};
  std::map<std::string, std::string> files;
  for (const char* name : {"steps.npy", "evaluations.npy"}) {
    try {
      if (SomethingIsAt(directory / name)) files[name] = ReadFile(directory / name);
    } catch (const Error&) {  // as if there were none
    }
  }
  return RecomputeMetrics(trial, files);
}

}  // namespace sparfuse::harness
