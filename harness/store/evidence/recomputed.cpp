#include "harness/store/evidence/recomputed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/store/step_log.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

struct MetricOfColumn {
  const char* metric;
  std::string_view column;  // column of evaluations.npy
  const char* unit;         // "": the workload's unit
};
constexpr std::array kEvaluated = {
    MetricOfColumn{"final_metric", "metric", ""},
    MetricOfColumn{"final_loss", "loss", "nats"},
    MetricOfColumn{"steps_to_target", "step", "steps"},
    MetricOfColumn{"seconds_to_target", "seconds", "seconds"},
    MetricOfColumn{"seconds_to_target_with_evaluation", "seconds_with_evaluation", "seconds"},
    MetricOfColumn{"epochs_to_target", "epoch", "epochs"},
    MetricOfColumn{"samples_to_target", "samples", "samples"}};

// Columns that are checked in every row although no metric has their name.
bool IsOfEveryRow(std::string_view column) {
  return column == "step" || column == "rank" || column == "measured" || column == "round" ||
         column == "achieved_density";
}

// Whether the metric is computed from the slowest rank's rows alone.
bool IsOfTheSlowest(std::string_view column) { return column.ends_with("_seconds"); }

// Reads the steps of a file. Returns an empty log if ranks do not have the same steps.
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

// A throughput is the work of a step, a whole number of units per sample, over the step's time.
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
  return fmt::format("throughput: {} is not a whole number of units a sample over its steps' time",
                     *throughput.value);
}

// Elements of the model, from the layout or else from the density of a measured step. 0 if neither
// gives them.
double DenseElements(const Trial& trial, const OpenSeries& steps) {
  double elements = 0;
  for (const LayoutTensor& tensor : trial.layout) elements += static_cast<double>(tensor.numel);
  for (std::uint64_t row = 0; row < steps.header.rows && elements == 0; ++row) {
    const double density = steps.Value("achieved_density", row);
    if (density > 0) elements = steps.Value("selected", row) / density;
  }
  return elements;
}

// Compares the metrics of evaluations with evaluations.npy. Removes the checked metrics from
// `open`.
std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& series,
                                      std::set<std::string>& open) {
  const std::uint64_t rows = series.header.rows;
  if (rows == 0) return "";
  const auto stated = [&](const char* name) {
    const auto metric = trial.metrics.find(name);
    return metric == trial.metrics.end() ? std::nullopt : metric->second.value;
  };
  // Training ends when the target is reached, so the last evaluation is the one that reached it.
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  for (const auto& [name, column, unit] : kEvaluated) {
    const std::optional<double> said = stated(name), last = series.Number(column, rows - 1);
    if (!said) continue;
    if (!last || !AreEqual(*said, *last))
      return SaidAndGiven(name, *said, last ? json(*last) : json(), "its evaluations give");
    const std::string expected = *unit != '\0' ? unit : workload == nullptr ? "" : workload->metric;
    if (const std::string& stored = trial.metrics.at(name).unit;
        trial.schema >= kTrialSchema && !expected.empty() && stored != expected)
      return SaidAndGiven(std::string(name) + ".unit", stored, expected, "its evaluations give");
    open.erase(name);
  }
  const json target = trial.config.value("target", json());
  const std::optional<double> last = series.Number("metric", rows - 1);
  if (!stated("steps_to_target") || !target.is_number() || workload == nullptr || !last) return "";
  const double wanted = target.get<double>();
  if (workload->higher_is_better ? *last >= wanted : *last <= wanted) return "";
  return fmt::format("steps_to_target: the last evaluation gives {:g}: expected a {} of at {} {:g}",
                     *last, workload->metric, workload->higher_is_better ? "least" : "most",
                     wanted);
}

// "" or a measured step that took no time, or took less than the sum of its parts, which are
// consecutive spans.
std::string WhatIsWrongWithTimes(const OpenSeries& series) {
  constexpr double kClock = 1e-6;  // relative error of a card's clock
  std::vector<const SeriesColumn*> of_step;
  for (const char* part : kPartsOfAStep) {
    const SeriesColumn* column = series.header.Find(part);
    if (column != nullptr && column->type == "<f8") of_step.push_back(column);
  }
  for (std::uint64_t row = 0; row < series.header.rows; ++row) {
    if (series.Number("measured", row) == 0.0) continue;
    const double step = *series.Number("step_seconds", row);
    if (step <= 0)
      return fmt::format("steps.npy: step_seconds = {} in row {}: expected a positive number", step,
                         row);
    double parts = 0;
    for (const SeriesColumn* part : of_step)
      parts += NumberIn(series.bytes, series.header, *part, row);
    if (parts <= step * (1 + kClock)) continue;
    return fmt::format("steps.npy: step_seconds = {} in row {}: its parts add up to {}", step, row,
                       parts);
  }
  return "";
}

// "" or the steps or ranks that a trial lacks.
std::string WhatIsMissing(const Trial& trial, const StepLog& log) {
  if (log.empty()) return "steps.npy: ranks have other steps";
  const double workers = NumberOf(trial.config, "workers");
  if (workers > 0 && static_cast<double>(log.size()) != workers)
    return fmt::format("steps.npy: it has {} rank(s): expected the {:g} of config.workers",
                       log.size(), workers);
  const std::vector<LoggedStep>& steps = log.front();
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].step == steps[i - 1].step + 1) continue;
    return fmt::format("steps.npy: step {} follows step {}: expected every step", steps[i].step,
                       steps[i - 1].step);
  }
  return "";
}

// "" or a column that the trial's steps.npy lacks.
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
  context.every = WindowSteps(trial.config);
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
  const auto sent = trial.metrics.find("sent_bytes_to_target");
  const auto reached = trial.metrics.find("steps_to_target");
  if (sent != trial.metrics.end() && sent->second.value) {
    if (reached == trial.metrics.end() || !reached->second.value)
      return "sent_bytes_to_target: expected steps_to_target beside it";
    const double of_log = SentBytesBefore(log, *reached->second.value);
    if (!AreEqual(*sent->second.value, of_log))
      return SaidAndGiven(sent->first, *sent->second.value, of_log);
    if (!sent->second.unit.empty() && sent->second.unit != "bytes")
      return SaidAndGiven(sent->first + ".unit", sent->second.unit, "bytes");
    open.erase(sent->first);
  }
  const auto throughput = trial.metrics.find("throughput");
  if (throughput != trial.metrics.end() && throughput->second.value) {
    const std::string wrong = WhatIsWrongWithThroughput(
        trial, throughput->second, computed.at("step_seconds").value.value_or(0));
    if (!wrong.empty()) return wrong;
    // Of a workload that the catalogue lacks, the units a sample are not known.
    if (WorkloadOf(trial.config) != nullptr) open.erase("throughput");
  }
  for (std::uint64_t row = 0; row < series.header.rows && context.dense_elements > 0; ++row) {
    const std::optional<double> density = series.Number("achieved_density", row);
    const double selected = series.Value("selected", row);
    if (!density || AreEqual(*density, selected / context.dense_elements)) continue;
    return fmt::format("steps.npy: achieved_density = {} in row {}: {} of {} elements are selected",
                       *density, row, selected, context.dense_elements);
  }
  const std::vector<double> rounds = RoundSeconds(log, context.every);
  if (!std::ranges::equal(trial.rounds, rounds, AreEqual))
    return SaidAndGiven("rounds", trial.rounds, rounds);
  return "";
}

// Sets the results that follow from the steps. Sets `made.differs` if they contradict the trial.
void HoldToSteps(const Trial& trial, const OpenSeries& series, std::set<std::string>& open,
                 Recomputed& made) {
  // Steps from before turns have another form, and count as no steps.
  if (trial.schema < kTrialSchema && series.header.Find("round") == nullptr) return;
  made.differs = WhatStepsLack(series);
  if (made.differs.empty()) made.differs = WhatIsWrongWithTimes(series);
  if (!made.differs.empty()) return;
  const StepLog log = LogIn(series);
  made.differs = WhatIsMissing(trial, log);
  if (!made.differs.empty()) return;
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

// Compares the series that trial.json describes with the files, and refuses impossible numbers.
std::string WhatSeriesContradict(const Trial& trial, const OpenSeriesByFile& opened) {
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  for (const auto& [file, series] : opened) {
    const auto found = trial.series.find(file);
    if (found == trial.series.end()) {
      if (trial.schema < kTrialSchema) continue;
      return fmt::format("series: expected {}, which is there", file);
    }
    const Series& stated = found->second;
    if (static_cast<std::uint64_t>(stated.rows) != series.header.rows)
      return SaidAndGiven("series." + file + ".rows", stated.rows, series.header.rows,
                          "the file has");
    for (const auto& [column, unit] : stated.units) {
      if (series.header.Find(column) == nullptr)
        return fmt::format("series.{}.units: {} has no column {}", file, file, column);
    }
    std::string wrong;
    if (trial.schema >= kTrialSchema)
      wrong = WhatIsWrongWithUnits(file, stated, workload == nullptr ? "" : workload->metric);
    if (wrong.empty()) wrong = WhatIsImpossible(file, series);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Columns with rows that no metric uses: columns without a metric, times of ranks that are not the
// slowest of their step, all evaluations but the last, and spans outside the compute lane.
std::vector<std::string> ColumnsOfNothing(const Trial& trial, const OpenSeriesByFile& opened,
                                          const Recomputed& made) {
  std::vector<std::string> columns;
  const auto add = [&](const std::string& file, const std::string& column) {
    columns.push_back(file + ": " + column);
  };
  if (const auto steps = opened.find("steps.npy"); steps != opened.end() && made.steps) {
    for (const SeriesColumn& column : steps->second.header.columns) {
      if (IsOfEveryRow(column.name)) continue;
      const bool has_metric = trial.metrics.contains(column.name);
      if (!has_metric || (IsOfTheSlowest(column.name) && made.steps->ranks > 1))
        add(steps->first, column.name);
    }
  }
  if (const auto found = opened.find("evaluations.npy"); found != opened.end()) {
    for (const SeriesColumn& column : found->second.header.columns) {
      const auto of = std::ranges::find(kEvaluated, column.name, &MetricOfColumn::column);
      const bool has_metric = of != kEvaluated.end() && trial.metrics.contains(of->metric);
      if (!has_metric || found->second.header.rows > 1) add(found->first, column.name);
    }
  }
  if (const auto spans = opened.find("spans.npy"); spans != opened.end()) {
    for (const SeriesColumn& column : spans->second.header.columns) {
      if (column.name.ends_with("_seconds") || column.name == "bytes")
        add(spans->first, column.name);
    }
  }
  return columns;
}

}  // namespace

namespace {

// What neither the trial's series nor the catalogue tell, with the reason. open: metrics that were
// not checked.
std::map<std::string, std::string> WhatNothingTells(const Trial& trial,
                                                    const OpenSeriesByFile& opened,
                                                    const std::set<std::string>& open) {
  std::map<std::string, std::string> untold;
  for (const std::string& metric : open) untold[metric] = "no series has it";
  if (!trial.draws.empty()) untold["draws"] = "no series has it";
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  if (open.contains("throughput") && workload == nullptr)
    untold["throughput"] = "the catalogue lacks their workload's units a sample";
  for (const std::string& fact : WhatOnlyStepsTell(trial))
    untold.try_emplace(fact, "their steps alone have it");
  const auto evaluations = opened.find("evaluations.npy");
  if (evaluations == opened.end() || !TellsBatch(evaluations->second))
    untold["config.batch_per_worker"] = "no evaluation counts epochs";
  if (!IsLive(trial)) {
    for (const char* key : {"seconds", "machine"})
      untold[key] = "they belong to models or profiles";
  }
  if (trial.layout.empty()) return untold;
  const auto revision = trial.revisions.find("workload:" + TextOf(trial.config, "workload"));
  if (workload == nullptr || revision == trial.revisions.end() ||
      revision->second != workload->revision)
    untold["layout"] = "the catalogue lacks this revision of their workload";
  return untold;
}

// "" or that nothing says why a trial of ours did not end well.
std::string WhatFailureLacks(const Trial& trial) {
  const bool passed =
      std::ranges::all_of(trial.checks, [](const auto& check) { return check.second; });
  if (trial.status == TrialStatus::kOk || trial.schema < kTrialSchema || trial.failure || !passed)
    return "";
  return fmt::format("status: {}: expected a failure, or a check that failed",
                     NameOf(trial.status));
}

}  // namespace

bool HasNumbers(const Trial& trial) {
  return trial.status == TrialStatus::kOk && !trial.imported &&
         trial.config.value("mode", json()) != kImported;
}

Recomputed RecomputeMetrics(const Trial& trial, const std::map<std::string, std::string>& files) {
  Recomputed made;
  if (!HasNumbers(trial)) {
    made.differs = WhatFailureLacks(trial);
    return made;
  }
  std::set<std::string> open;  // metrics that were not checked yet
  for (const auto& [name, metric] : trial.metrics) {
    if (metric.value) open.insert(name);
  }
  const OpenSeriesByFile opened = OpenAll(files);
  made.differs = WhatSeriesContradict(trial, opened);
  const auto evaluations = opened.find("evaluations.npy");
  if (made.differs.empty() && evaluations != opened.end())
    made.differs = WhatEvaluationsContradict(trial, evaluations->second, open);
  const auto steps = opened.find("steps.npy"), spans = opened.find("spans.npy");
  if (made.differs.empty() && steps != opened.end()) HoldToSteps(trial, steps->second, open, made);
  if (made.differs.empty() && made.steps && spans != opened.end() && trial.schema >= kTrialSchema)
    made.differs = WhatSpansContradict(spans->second, steps->second);
  if (made.differs.empty() && made.steps && trial.schema >= kTrialSchema)
    made.differs =
        WhatBytesContradict(trial, steps->second, spans == opened.end() ? nullptr : &spans->second);
  if (made.differs.empty() && trial.schema >= kTrialSchema)
    made.differs = WhatRecordContradicts(trial, opened);
  made.columns_of_nothing = ColumnsOfNothing(trial, opened, made);
  made.evaluated = made.steps && evaluations != opened.end() && trial.schema >= kTrialSchema;
  made.unchecked = WhatNothingTells(trial, opened, open);
  return made;
}

Recomputed RecomputeMetrics(const Trial& trial, const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const char* name : {"steps.npy", "evaluations.npy"}) {
    try {
      if (SomethingIsAt(directory / name)) files[name] = ReadFile(directory / name);
    } catch (const Error&) {  // as if the file did not exist
    }
  }
  return RecomputeMetrics(trial, files);
}

bool AreEqual(double a, double b) {
  constexpr double kMostRelative = 1e-9;
  return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b));
}

json MemberIn(const json& config, const char* key) {
  return config.is_object() ? config.value(key, json()) : json();
}

double NumberOf(const json& config, const char* key) {
  const json value = MemberIn(config, key);
  return value.is_number() ? value.get<double>() : 0;
}

std::string TextOf(const json& config, const char* key) {
  const json value = MemberIn(config, key);
  return value.is_string() ? value.get<std::string>() : "";
}

bool IsLive(const Trial& trial) {
  const std::string mode = TextOf(trial.config, "mode"), kind = TextOf(trial.config, "kind");
  return (mode == NameOf(Mode::kMeasured) || mode == NameOf(Mode::kEmulated)) &&
         (kind == NameOf(TrialKind::kThroughput) || kind == NameOf(TrialKind::kConvergence));
}

bool IsProfile(const Trial& trial) {
  return TextOf(trial.config, "kind") == NameOf(TrialKind::kProfile);
}

const workloads::WorkloadDescriptor* WorkloadOf(const json& config) {
  try {
    const std::string name = TextOf(config, "workload");
    return name.empty() ? nullptr : &workloads::FindWorkload(name);
  } catch (const Error&) {
    return nullptr;
  }
}

std::string SaidAndGiven(const std::string& name, const json& stored, const json& given,
                         const char* by) {
  return fmt::format("{}: trial.json has {}, {} {}", name, stored.dump(), by, given.dump());
}

}  // namespace sparfuse::harness
