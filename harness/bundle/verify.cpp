#include "harness/bundle/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/bundle/held_outcome.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// Whether a trial that ran should have readings of its machine's quietness.
bool ShouldHaveReadings(const Trial& trial) {
  return trial.schema >= kTrialSchema && HasNumbers(trial) && !trial.quiet &&
         trial.config.value("mode", json()) != NameOf(Mode::kModelled);
}

// Rows of a table that readable trials can confirm.
struct HeldRows {
  std::map<std::string, json> rows;  // by their trials
  std::set<std::string> left_out;    // cells of rows with an unreadable trial
};

std::string CellOf(const json& row) {
  return json{row.at("experiment"), row.at("part"), row.at("config"), row.at("revisions")}.dump();
}

HeldRows RowsToHold(const json& table, const std::set<std::string>& unreadable) {
  HeldRows held;
  for (json row : table) {
    std::set<std::string> trials;
    for (const json& id : row.at("trials")) trials.insert(id.get<std::string>());
    for (const auto& [id, why] : row.at("set_aside").items()) trials.insert(id);
    if (std::ranges::any_of(trials, [&](const auto& id) { return unreadable.contains(id); })) {
      held.left_out.insert(CellOf(row));
      continue;
    }
    // The system's name and the order of blocks tell stores apart, of which one may be unreadable.
    row.erase("system");
    row.erase("trials");
    const std::string key = fmt::format("{}", fmt::join(trials, " "));
    if (!held.rows.emplace(key, std::move(row)).second)
      SPARFUSE_THROW(kData, fmt::format("table.json: two rows of {}", key));
  }
  return held;
}

// "" or how the table of a bundle differs from the table of its readable trials.
std::string WhatTableContradicts(const json& stored, const json& made,
                                 const std::set<std::string>& unreadable) {
  if (unreadable.empty()) return FirstDifference(stored, made);
  const HeldRows said = RowsToHold(stored, unreadable), given = RowsToHold(made, {});
  for (const auto& [trials, row] : given.rows) {
    const auto found = said.rows.find(trials);
    // In place of an unreadable trial, another trial makes the row.
    if (found == said.rows.end() && said.left_out.contains(CellOf(row))) continue;
    if (found == said.rows.end()) return fmt::format("table.json: it has no row of {}", trials);
    const std::string difference = FirstDifference(found->second, row);
    if (!difference.empty()) return difference;
  }
  for (const auto& [trials, row] : said.rows) {
    if (!given.rows.contains(trials))
      return fmt::format("table.json: a row of {} that does not follow from its trials", trials);
  }
  return "";
}

}  // namespace

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
  std::vector<TrialRow> readable;
  std::set<std::string> unreadable;
  OtherTrials others;
  Patience patience;
  std::size_t done = 0;
  for (const auto& [id, hashes] : content.trials) {
    patience.Note(done++, "trials read", content.trials.size());
    try {
      const BundledTrial trial = bundle.Trial(id);
      TrialRow& row = readable.emplace_back(RowOf(trial.trial));
      if (const auto found = reasons.find(id); found != reasons.end())
        row.annotations = found->second;
      const Recomputed numbers = RecomputeMetrics(trial.trial, trial.files);
      made.trials[id] = {hashes, numbers.steps};
      const bool has_numbers = HasNumbers(trial.trial);
      (numbers.steps ? made.of_steps : has_numbers ? made.without_steps : made.without_numbers)++;
      made.of_evaluations += numbers.evaluated;
      made.of_earlier_form += has_numbers && trial.trial.schema < kTrialSchema;
      made.without_readings += ShouldHaveReadings(trial.trial);
      if (numbers.steps) {
        for (const auto& [fact, why] : numbers.unchecked) ++made.unchecked[{why, fact}];
        for (const std::string& column : numbers.columns_of_nothing)
          ++made.unchecked_columns[column];
      }
      std::string differs = numbers.differs;
      if (differs.empty()) differs = WhatFilesContradict(trial);
      if (differs.empty()) differs = others.WhatContradicts(trial);
      if (differs.empty()) {
        made.rows.push_back(row);
      } else {
        made.refused[id] = fmt::format("{}: trials/{}: {}", file, id, differs);
      }
    } catch (const Error& error) {
      unreadable.insert(id);
      made.refused[id] = error.what();
    }
  }
  for (const auto& [id, why] : made.refused) made.problems.push_back(why);
  made.table = TableOfTrials(std::move(readable), bundle.version());
  try {
    const std::string difference = WhatTableContradicts(bundle.Table(), made.table, unreadable);
    if (!difference.empty()) made.table_differs = fmt::format("{}: {}", file, difference);
  } catch (const Error& error) {
    made.table_differs = fmt::format("{}: {}", file, error.what());
  } catch (const json::exception&) {
    made.table_differs = file + ": table.json: expected the rows that `export` writes";
  }
  if (!made.table_differs.empty()) made.problems.push_back(made.table_differs);
  return made;
}

std::span<const std::string> KeysThatNothingTells() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys = {
        "started_utc",
        "seed",
        "revisions",
        "sources",
        "source",
        "software",
        "environment",
        "quiet",
        "machine.cores",
        "machine.communication_threads",
        "machine.kernels",
        "machine.cuda_devices",
        "system.cores",
        "system.kernel",
        "launch.nodes.*.cores",
        "launch.nodes.*.network",
        "launch.id",
        "launch.binding.cores",
        "launch.binding.numa",
        "launch.binding.interface",
        "launch.network",
        "launch.clocks",
        "outcome.json.selection_counters",
        "outcome.json.plans",
        "outcome.json.profile",
        "redaction",
    };
    // Keys of the cell that steps, tensors and revisions confirm.
    const std::set<std::string> shown = {"kind",       "method",           "workload",
                                         "workers",    "batch_per_worker", "density",
                                         "sparsifier", "accumulation",     "dense_tensors"};
    const json config = ToJson(CellConfig());
    for (const auto& [key, value] : config.items()) {
      if (!shown.contains(key)) keys.push_back("config." + key);
    }
    return keys;
  }();
  return kKeys;
}

std::vector<std::string> WhatIsNotChecked(const Verification& verification) {
  std::vector<std::string> said;
  const std::size_t all =
      verification.of_steps + verification.without_steps + verification.without_numbers;
  if (verification.without_steps > 0)
    said.push_back(
        fmt::format("{} of {} trials without steps: not checked", verification.without_steps, all));
  if (verification.of_earlier_form > 0)
    said.push_back(
        fmt::format("{} of {} trials have the form of earlier bundles: only the metrics of their "
                    "steps are checked",
                    verification.of_earlier_form, all));
  // Facts that lack evidence for one reason, in equally many trials, share a sentence.
  std::map<std::pair<std::string, std::size_t>, std::vector<std::string>> facts;
  for (const auto& [fact, trials] : verification.unchecked)
    facts[{fact.first, trials}].push_back(fact.second);
  for (const auto& [of, names] : facts) {
    said.push_back(fmt::format("{} of {} trials: {}, not checked", fmt::join(names, ", "),
                               of.second, of.first));
  }
  // Unchecked columns of a file in equally many trials share a sentence.
  std::map<std::pair<std::string, std::size_t>, std::vector<std::string>> columns;
  for (const auto& [column, trials] : verification.unchecked_columns) {
    const std::size_t end = column.find(": ");
    columns[{column.substr(0, end), trials}].push_back(column.substr(end + 2));
  }
  for (const auto& [of, names] : columns) {
    said.push_back(
        fmt::format("{}: {} of {} trials: rows that no metric is made from are not "
                    "checked",
                    of.first, fmt::join(names, ", "), of.second));
  }
  if (verification.without_readings > 0)
    said.push_back(
        fmt::format("{} of {} trials without readings of their machine: whether they "
                    "were disturbed is not known",
                    verification.without_readings, all));
  return said;
}

}  // namespace sparfuse::harness
