#include "harness/bundle/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/bundle/series_file.hpp"
#include "harness/store/patience.hpp"
#include "harness/store/step_log.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

constexpr double kMostRelative = 1e-9;

bool AreEqual(double a, double b) {
  return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b));
}

// Of the steps in a file; empty where ranks do not have the same steps.
StepLog LogIn(std::string_view bytes, const SeriesHeader& header) {
  std::map<double, std::vector<LoggedStep>> ranks;
  const auto value = [&](const char* name, std::uint64_t row) {
    const SeriesColumn* column = header.Find(name);
    return column == nullptr ? 0.0 : NumberIn(bytes, header, *column, row);
  };
  for (std::uint64_t row = 0; row < header.rows; ++row)
    ranks[value("rank", row)].push_back(
        LoggedStepOf([&](const char* name) { return value(name, row); }));
  StepLog log;
  for (auto& [rank, steps] : ranks) log.push_back(std::move(steps));
  const bool alike = std::ranges::all_of(log, [&](const std::vector<LoggedStep>& steps) {
    return std::ranges::equal(steps, log.front(), {}, &LoggedStep::step, &LoggedStep::step);
  });
  return alike ? log : StepLog();
}

double NumberOf(const json& config, const char* key) {
  const json value = config.value(key, json());
  return value.is_number() ? value.get<double>() : 0;
}

// What the catalogue says of the workload; nothing of one that it does not have.
std::optional<double> UnitsASample(const json& config) {
  try {
    const std::string workload = config.value("workload", "");
    return static_cast<double>(workloads::FindWorkload(workload).units_per_sample);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A throughput is what a step processes, a whole number of units a sample, over its time.
std::string WhatIsWrongWithThroughput(const Trial& trial, double throughput, double step_seconds) {
  constexpr double kMostUnits = 1e6;
  const json& config = trial.config;
  const double samples = NumberOf(config, "workers") * NumberOf(config, "batch_per_worker") *
                         NumberOf(config, "accumulation");
  if (samples <= 0) return "";
  const double units = throughput * step_seconds / samples;
  if (const std::optional<double> known = UnitsASample(config)) {
    if (AreEqual(units, *known)) return "";
    return fmt::format(
        "throughput: {} makes {:g} units a sample over its steps' time: expected {:g}", throughput,
        units, *known);
  }
  if (units > 0.5 && units < kMostUnits && AreEqual(units, std::round(units))) return "";
  return fmt::format("throughput: {} is no whole number of units a sample over its steps' time",
                     throughput);
}

std::string SaidAndGiven(const std::string& name, const json& stored, const json& given,
                         const char* by = "its steps give") {
  return fmt::format("{}: trial.json has {}, {} {}", name, stored.dump(), by, given.dump());
}

std::string WhatDiffers(const Trial& trial, const StepLog& log) {
  StepLogContext context;
  for (const LayoutTensor& tensor : trial.layout)
    context.dense_elements += static_cast<double>(tensor.numel);
  const bool knows_density = context.dense_elements > 0;
  MetricValues computed = MetricsOf(log, context);
  for (const auto& [name, metric] : trial.metrics) {
    if (!metric.value || !computed.contains(name) || name == "throughput") continue;
    if (name == "achieved_density" && !knows_density) continue;
    const double of_log = computed[name].value.value_or(std::nan(""));
    if (!AreEqual(*metric.value, of_log)) return SaidAndGiven(name, *metric.value, of_log);
  }
  const auto throughput = trial.metrics.find("throughput");
  if (throughput != trial.metrics.end() && throughput->second.value) {
    const std::string wrong = WhatIsWrongWithThroughput(trial, *throughput->second.value,
                                                        computed["step_seconds"].value.value_or(0));
    if (!wrong.empty()) return wrong;
  }
  const std::vector<double> rounds = RoundSeconds(log);
  if (!trial.rounds.empty() && !std::ranges::equal(trial.rounds, rounds, AreEqual))
    return SaidAndGiven("rounds", trial.rounds, rounds);
  return "";
}

// What the metrics say of evaluations, against evaluations.npy.
std::string WhatEvaluationsContradict(const BundledTrial& bundled) {
  const auto found = bundled.files.find("evaluations.npy");
  SeriesHeader header;
  if (found == bundled.files.end() ||
      !WhatIsWrongWithSeries("evaluations.npy", found->second, &header).empty() || header.rows == 0)
    return "";
  const auto value = [&](const char* column, std::uint64_t row) -> std::optional<double> {
    const SeriesColumn* of = header.Find(column);
    if (of == nullptr) return std::nullopt;
    return NumberIn(found->second, header, *of, row);
  };
  const MetricValues& metrics = bundled.trial.metrics;
  const auto stated = [&](const char* name) {
    const auto metric = metrics.find(name);
    return metric == metrics.end() ? std::nullopt : metric->second.value;
  };
  for (const auto& [name, column] : {std::pair("final_metric", "metric"), {"final_loss", "loss"}}) {
    const std::optional<double> said = stated(name), last = value(column, header.rows - 1);
    if (said && !(last && AreEqual(*said, *last)))
      return SaidAndGiven(name, *said, last ? json(*last) : json(), "its evaluations give");
  }
  const std::optional<double> steps = stated("steps_to_target");
  if (!steps) return "";
  for (std::uint64_t row = 0; row < header.rows; ++row) {
    if (value("step", row) != steps) continue;
    const std::optional<double> seconds = stated("seconds_to_target"),
                                given = value("seconds", row);
    if (!seconds || (given && AreEqual(*seconds, *given))) return "";
    return SaidAndGiven("seconds_to_target", *seconds, given ? json(*given) : json(),
                        "its evaluations give");
  }
  return fmt::format("steps_to_target: {:g}: evaluations.npy has no evaluation there", *steps);
}

// A measured step took time, and all that is counted of it is a number.
std::string WhatIsWrongWithSteps(std::string_view bytes, const SeriesHeader& header) {
  const SeriesColumn& measured = *header.Find("measured");
  for (std::uint64_t row = 0; row < header.rows; ++row) {
    if (NumberIn(bytes, header, measured, row) == 0) continue;
    for (const SeriesColumn& column : header.columns) {
      const double number = NumberIn(bytes, header, column, row);
      const bool is_time = column.name == "step_seconds";
      if (std::isfinite(number) && (!is_time || number > 0)) continue;
      return fmt::format("steps.npy: {} = {} in row {}: expected a {}number", column.name, number,
                         row, is_time ? "positive " : "");
    }
  }
  return "";
}

}  // namespace

Recomputed RecomputeMetrics(const BundledTrial& trial) {
  Recomputed made;
  const auto found = trial.files.find("steps.npy");
  SeriesHeader header;
  if (trial.trial.imported || trial.trial.status != TrialStatus::kOk) return made;
  made.differs = WhatEvaluationsContradict(trial);
  if (!made.differs.empty() || found == trial.files.end() ||
      !WhatIsWrongWithSeries("steps.npy", found->second, &header).empty())
    return made;
  for (const auto& [name, type] : {std::pair("step", "<i8"),
                                   {"rank", "<i8"},
                                   {"measured", "|b1"},
                                   {"round", "<i8"},
                                   {"step_seconds", "<f8"}}) {
    const SeriesColumn* column = header.Find(name);
    if (column != nullptr && column->type == type) continue;
    // Trials of before turns have no rounds, and are not checked.
    if (column == nullptr && name == std::string_view("round") && trial.trial.schema < kTrialSchema)
      return made;
    made.differs = fmt::format("steps.npy: expected a column {} of type {}", name, type);
    return made;
  }
  made.differs = WhatIsWrongWithSteps(found->second, header);
  if (!made.differs.empty()) return made;
  const StepLog log = LogIn(found->second, header);
  if (log.empty()) {
    made.differs = "steps.npy: ranks have other steps";
    return made;
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
    return made;
  }
  made.steps = range;
  made.differs = WhatDiffers(trial.trial, log);
  return made;
}

Verification Verify(const Bundle& bundle) {
  Verification made;
  const BundleContent& content = bundle.content();
  const std::string file = bundle.path().string();
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [id, hash] : content.annotations) {
    try {
      const Annotation annotation = bundle.Annotation(id);
      reasons[annotation.trial_id].push_back(annotation.reason);
    } catch (const Error& error) {
      made.problems.push_back(error.what());
    }
  }
  const bool annotations_are_whole = made.problems.empty();
  std::vector<TrialRow> readable;
  Patience patience;
  std::size_t done = 0;
  for (const auto& [id, hashes] : content.trials) {
    patience.Note(done++, "trials read", content.trials.size());
    try {
      const BundledTrial trial = bundle.Trial(id);
      TrialRow& row = readable.emplace_back(RowOf(trial.trial));
      if (const auto found = reasons.find(id); found != reasons.end())
        row.annotations = found->second;
      const Recomputed numbers = RecomputeMetrics(trial);
      made.trials[id] = {hashes, numbers.steps};
      const bool has_numbers = trial.trial.status == TrialStatus::kOk && !trial.trial.imported;
      (numbers.steps ? made.of_steps : has_numbers ? made.without_steps : made.without_numbers)++;
      if (numbers.differs.empty()) {
        made.rows.push_back(row);
      } else {
        made.refused[id] = fmt::format("{}: trials/{}: {}", file, id, numbers.differs);
      }
    } catch (const Error& error) {
      made.refused[id] = error.what();
    }
  }
  for (const auto& [id, why] : made.refused) made.problems.push_back(why);
  const bool is_whole = annotations_are_whole && readable.size() == content.trials.size();
  made.table = TableOfTrials(std::move(readable), bundle.version());
  std::string wrong;
  try {
    const std::string difference = FirstDifference(bundle.Table(), made.table);
    if (!difference.empty()) wrong = fmt::format("{}: {}", file, difference);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) made.problems.push_back(wrong);
  if (is_whole) made.table_differs = wrong;
  return made;
}

}  // namespace sparfuse::harness
