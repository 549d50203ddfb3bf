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

// A throughput is what a step processes, a whole number of units a sample, over its time.
bool IsOfTheSteps(const Trial& trial, double throughput, double step_seconds) {
  const json& config = trial.config;
  const double samples = NumberOf(config, "workers") * NumberOf(config, "batch_per_worker") *
                         NumberOf(config, "accumulation");
  if (samples <= 0) return true;
  const double units = throughput * step_seconds / samples;
  return units > 0.5 && AreEqual(units, std::round(units));
}

std::string WhatDiffers(const Trial& trial, const StepLog& log, const SeriesHeader& header) {
  const auto said = [](const std::string& name, const json& stored, const json& steps) {
    return fmt::format("{}: trial.json has {}, its steps give {}", name, stored.dump(),
                       steps.dump());
  };
  StepLogContext context;
  context.dense_elements = 1;
  MetricValues computed = MetricsOf(log, context);
  for (const auto& [name, metric] : trial.metrics) {
    const bool of_steps = name == "other_seconds" || header.Find(name) != nullptr;
    if (!metric.value || !of_steps || name == "achieved_density" || !computed.contains(name))
      continue;
    const double of_log = computed[name].value.value_or(std::nan(""));
    if (!AreEqual(*metric.value, of_log)) return said(name, *metric.value, of_log);
  }
  const auto throughput = trial.metrics.find("throughput");
  if (throughput != trial.metrics.end() && throughput->second.value &&
      !IsOfTheSteps(trial, *throughput->second.value, computed["step_seconds"].value.value_or(0))) {
    return fmt::format("throughput: {} is no whole number of units a sample over its steps' time",
                       *throughput->second.value);
  }
  const std::vector<double> rounds = RoundSeconds(log);
  if (!trial.rounds.empty() && !std::ranges::equal(trial.rounds, rounds, AreEqual))
    return said("rounds", trial.rounds, rounds);
  return "";
}

}  // namespace

Recomputed RecomputeMetrics(const BundledTrial& trial) {
  Recomputed made;
  const auto found = trial.files.find("steps.npy");
  SeriesHeader header;
  if (found == trial.files.end() || trial.trial.status != TrialStatus::kOk ||
      !WhatIsWrongWithSeries("steps.npy", found->second, &header).empty())
    return made;
  for (const auto& [name, type] : {std::pair("step", "<i8"),
                                   {"rank", "<i8"},
                                   {"measured", "|b1"},
                                   {"round", "<i8"},
                                   {"step_seconds", "<f8"}}) {
    const SeriesColumn* column = header.Find(name);
    if (column == nullptr || column->type != type) return made;
  }
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
  made.differs = WhatDiffers(trial.trial, log, header);
  return made;
}

namespace {}  // namespace

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
