// Makes bundles of trials, verifies their content, and merges them into a store: `sparfuse export`,
// `verify`, `merge`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>

#include "core/base/error.hpp"
#include "harness/bundle/bundle.hpp"
#include "harness/bundle/merge.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

bool IsOf(const TrialRow& row, const std::string& experiment) {
  return row.experiment == experiment || row.experiment.starts_with(experiment + "/");
}

// The trials of all names: experiments, papers, files. A name without trials is an error.
std::vector<TrialRow> TrialsOf(Program& program, std::vector<TrialRow> rows,
                               const std::vector<std::string>& names) {
  std::set<std::string> ids;
  for (const std::string& name : names) {
    const std::string id = name.ends_with(".toml") ? program.Load(name).id : name;
    const bool any = std::ranges::any_of(rows, [&](const auto& row) { return IsOf(row, id); });
    if (id.empty() || !any) {
      std::set<std::string> known;
      for (const TrialRow& row : rows) known.insert(row.experiment);
      const std::vector<std::string> list(known.begin(), known.end());
      SPARFUSE_THROW(kConfig,
                     fmt::format("no trial of experiment \"{}\" in {}{}", id,
                                 program.store().results().string(),
                                 list.empty() ? ", which has no trials" : Suggestion(id, list)));
    }
    ids.insert(id);
  }
  std::erase_if(rows, [&](const TrialRow& row) {
    return std::ranges::none_of(ids, [&](const std::string& id) { return IsOf(row, id); });
  });
  return rows;
}

void Show(const Export& bundle, bool as_json) {
  const LeavingKeys leaves = KeysThatLeave();
  const std::set<std::string>& stays = bundle.summary().stays;
  if (as_json) {
    PrintJson({{"leaves", leaves}, {"stays", stays}});
    return;
  }
  fmt::print("leaves:\n");
  for (const auto& [key, how] : leaves) fmt::print("  {:8} {}\n", how, key);
  std::map<std::string, std::size_t> series;
  for (const auto& [id, files] : bundle.summary().content.trials) {
    for (const auto& [file, hash] : files) series[file] += file.ends_with(".npy");
  }
  for (const auto& [file, trials] : series) {
    if (trials > 0) fmt::print("  series   {}, of {} trial(s)\n", file, trials);
  }
  fmt::print("stays here:\n");
  for (const std::string& key : stays) fmt::print("  {}\n", key);
}

// Names the trials that ran here and that others annotated as bad.
void SayHeld(const MergeSummary& summary, bool taken) {
  for (const std::string& trial : summary.held)
    fmt::print(stderr, "{}: {}\n", taken ? "taken out" : "called bad by others", trial);
  if (summary.held.empty() || taken) return;
  fmt::print(stderr,
             "{} annotation(s) of others would take out trials that ran here: these trials stay; "
             "`sparfuse merge --take-annotations` takes them out\n",
             summary.held.size());
}

}  // namespace

int ExportVerb(Program& program, const ExportRequest& request) {
  if (request.out.empty() && !request.show)
    SPARFUSE_THROW(kConfig, "export: expected --out FILE.sparfuse, --show, or both");
  if (!request.out.empty() && request.out.extension() != ".sparfuse") {
    SPARFUSE_THROW(kConfig, fmt::format("--out {}: expected a name that ends in .sparfuse",
                                        request.out.string()));
  }
  std::vector<TrialRow> rows = program.Rows();
  PrivateNames names = PrivateNames::OfTrials(rows, program.store().results());
  const Export bundle(program.store(), TrialsOf(program, std::move(rows), request.names),
                      std::move(names));
  const ExportSummary& summary = bundle.summary();
  for (const std::string& why : summary.left_out)
    fmt::print(stderr, "warning: {}; left out\n", Visible(why));
  if (request.show) Show(bundle, program.json());
  if (request.out.empty()) return kDone;
  bundle.Write(DescribeSource(program.root()), request.out);
  const auto bytes = std::filesystem::file_size(request.out);
  if (program.json() && !request.show) {
    PrintJson({{"file", request.out.string()},
               {"bytes", bytes},
               {"trials", summary.content.trials.size()},
               {"annotations", summary.content.annotations.size()},
               {"left_out", summary.left_out}});
  } else if (!program.json()) {
    fmt::print("{}: {} trial(s), {} annotation(s), {} bytes{}\n", request.out.string(),
               summary.content.trials.size(), summary.content.annotations.size(), bytes,
               request.show ? "" : "; --show lists the keys that left");
  }
  return summary.left_out.empty() ? kDone : kTrialFailed;
}

int MergeVerb(Program& program, const MergeVerbRequest& request) {
  const Store& store = program.store();
  const std::vector<TrialRow> rows = program.Rows();
  const StoreLock lock(store.results());
  json merged = json::array();
  bool any_refused = false;
  for (const auto& file : request.files) {
    MergeSummary summary;
    std::optional<Bundle> bundle;
    try {
      bundle.emplace(file);
    } catch (const Error& error) {
      summary.refused.push_back(error.what());
    }
    if (bundle) summary = Merge(store, lock, *bundle, rows, {request.take_annotations});
    any_refused = any_refused || !summary.refused.empty();
    for (const std::string& why : summary.refused)
      fmt::print(stderr, "refused: {}\n", Visible(why));
    SayHeld(summary, request.take_annotations);
    for (const std::string& what : summary.not_checked)
      fmt::print(stderr, "note: {}: {}\n", file.string(), what);
    if (!program.json()) {
      fmt::print("{}: {} trial(s) added, {} already here, {} annotation(s) added, {} refused\n",
                 file.string(), summary.added.size(), summary.present, summary.annotations,
                 summary.refused.size());
    }
    merged.push_back({{"file", file.string()},
                      {"added", summary.added},
                      {"present", summary.present},
                      {"annotations", summary.annotations},
                      {"held", summary.held},
                      {"not_checked", summary.not_checked},
                      {"refused", summary.refused}});
  }
  std::vector<std::string> problems;
  store.OpenIndex(lock, problems);
  for (const std::string& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  if (program.json()) PrintJson(merged);
  return any_refused ? kTrialFailed : kDone;
}

namespace {

std::string ValueText(const json& metric) {
  std::string text = fmt::format("{:.4g}", metric["value"].get<double>());
  if (metric["low"] != metric["high"] && metric["low"].is_number() && metric["high"].is_number()) {
    text +=
        fmt::format(" [{:.4g}, {:.4g}]", metric["low"].get<double>(), metric["high"].get<double>());
  }
  return fmt::format("{} {}, {} block(s)", text, metric["unit"].get<std::string>(),
                     metric["n"].dump());
}

void PrintTable(const json& table) {
  std::string part;
  for (const json& row : table) {
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    const std::string of = fmt::format(
        "{}/{} on {} (system {})", text("experiment"), text("part"),
        text("hardware").empty() ? "unknown hardware" : text("hardware"), text("system"));
    if (of != part) fmt::print("{}\n", part = of);
    const json& metrics = row["metrics"];
    std::string value = row["trials"].empty()
                            ? "no trial counts"
                            : fmt::format("{} trial(s), all disturbed: their times do not count",
                                          row["trials"].size());
    for (const char* name : {"step_seconds", "throughput"}) {
      if (metrics.contains(name) && metrics[name]["value"].is_number())
        value = fmt::format("{} {}", name, ValueText(metrics[name]));
    }
    fmt::print("  {} {} w{} {}: {}\n", text("method"), text("workload"), row["workers"].dump(),
               text("config"), value);
    for (const auto& [id, why] : row["set_aside"].items())
      fmt::print("    set aside: {} ({})\n", id, why.get<std::string>());
  }
}

// By id: {"sha256": {file: hash}, "steps": {"first", "last", "measured", "ranks"} or null}.
json TrialsJson(const Verification& verification) {
  json trials = json::object();
  for (const auto& [id, checked] : verification.trials) {
    json& entry = trials[id] = {{"sha256", checked.sha256}, {"steps", nullptr}};
    if (!checked.steps) continue;
    entry["steps"] = {{"first", checked.steps->first},
                      {"last", checked.steps->last},
                      {"measured", checked.steps->measured},
                      {"ranks", checked.steps->ranks}};
  }
  return trials;
}

// ", the metrics of 18 are those of their steps".
std::string CheckedNumbers(const Verification& verification) {
  std::string said;
  if (verification.of_steps > 0)
    said += fmt::format(", the metrics of {} follow from their steps", verification.of_steps);
  if (verification.of_evaluations > 0)
    said +=
        fmt::format(", the final values of {} from their evaluations", verification.of_evaluations);
  if (verification.without_numbers > 0)
    said += fmt::format(", {} failed or imported", verification.without_numbers);
  return said;
}

}  // namespace

int VerifyVerb(Program& program, const std::filesystem::path& file) {
  const Bundle bundle(file);
  const Verification verification = Verify(bundle);
  for (const std::string& problem : verification.problems)
    fmt::print(stderr, "error: {}\n", Visible(problem));
  const std::vector<std::string> not_checked = WhatIsNotChecked(verification);
  for (const std::string& what : not_checked)
    fmt::print(stderr, "note: {}: {}\n", file.string(), what);
  const bool good = verification.problems.empty();
  const auto untold = KeysThatNothingTells();
  if (verification.of_steps + verification.without_steps > 0) {
    std::vector<std::string> named(untold.begin(), untold.end());
    const auto of_cells =
        std::erase_if(named, [](const std::string& key) { return key.starts_with("config."); });
    fmt::print(stderr,
               "note: {}: hashes are no signature, and nothing in a bundle confirms these keys of "
               "trials: {}, and {} of config (--json lists them)\n",
               file.string(), fmt::join(named, ", "), of_cells);
  }
  if (program.json()) {
    PrintJson({{"file", file.string()},
               {"written_by", ToJson(bundle.written_by())},
               {"problems", verification.problems},
               {"not_checked", not_checked},
               {"nothing_tells", std::vector<std::string>(untold.begin(), untold.end())},
               {"trials", TrialsJson(verification)},
               {"table", verification.table}});
  } else {
    PrintTable(verification.table);
    fmt::print("{}: {} trial(s), {}\n", file.string(), bundle.content().trials.size(),
               good ? fmt::format("all hashes agree{}, and the table follows from the trials",
                                  CheckedNumbers(verification))
                    : fmt::format("{} problem(s)", verification.problems.size()));
  }
  return good ? kDone : kTrialFailed;
}

}  // namespace sparfuse::harness
