// Shows the content of the store and keeps it in order: `sparfuse table`, `status`, `index`,
// `annotate`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/report/findings.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/spec.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

void PrintTables(const LoadedExperiment& loaded, const std::vector<Table>& tables,
                 TableFormat format) {
  if (const std::string warning = DisturbedWarning(loaded.results); !warning.empty()) {
    const char* mark = format == TableFormat::kLatex      ? "% "
                       : format == TableFormat::kMarkdown ? "**Warning:** "
                                                          : "warning: ";
    fmt::print("{}{}\n\n", mark, warning);
  }
  for (const Table& table : tables) fmt::print("{}\n", Render(table, format));
}

}  // namespace

void PrintTables(Program& program, const LoadedExperiment& loaded, TableFormat format) {
  PrintTables(loaded, TablesOf(loaded.parts, loaded.results, program.catalog()), format);
}

int TableVerb(Program& program, const TableRequest& request) {
  const auto loaded = program.LoadWithResults(request.experiment);
  const Catalog& catalog = program.catalog();
  const bool pivots = !request.pivot.rows.empty();
  if (!program.json() && request.format != "csv") {
    PrintTables(*loaded,
                pivots ? PivotTables(loaded->results, request.pivot, catalog)
                       : TablesOf(loaded->parts, loaded->results, catalog),
                TableFormatOf(request.format));
    return kDone;
  }
  if (pivots && program.json()) {
    const nlohmann::ordered_json rows = PivotNumbers(loaded->results, request.pivot, catalog);
    fmt::print("{}\n", Visible(rows.dump(1, ' ', false, json::error_handler_t::replace)));
  } else if (pivots) {
    fmt::print("{}", PivotCsv(loaded->results, request.pivot, catalog));
  } else {
    const auto records = RecordsOf(loaded->parts, loaded->results, catalog);
    if (program.json()) {
      PrintJson(RecordsJson(records));
    } else {
      fmt::print("{}", RecordsCsv(records));
    }
  }
  if (const std::string warning = DisturbedWarning(loaded->results); !warning.empty())
    fmt::print(stderr, "warning: {}\n", warning);
  return kDone;
}

namespace {

// The failure's message, which is known on this machine only.
std::string MessageOf(const Program& program, const TrialRow& row) {
  return row.status == "ok" ? "" : FailureMessageIn(program.store().results() / row.directory);
}

// The store's trials of one experiment.
struct StoredTrials {
  std::size_t trials = 0, failed = 0, disturbed = 0, left_out = 0;
  std::set<std::string> cells, systems;
  std::string newest;  // when its newest trial started, UTC
};

int PrintStore(const Program& program) {
  std::map<std::string, StoredTrials> experiments;
  for (const TrialRow& row : program.Rows()) {
    StoredTrials& stored = experiments[row.experiment];
    ++stored.trials;
    stored.failed += row.status != "ok";
    stored.disturbed += row.disturbed();
    stored.left_out += row.is_left_out();
    stored.cells.insert(row.config_hash);
    if (const std::string machine = MachineOf(row); !machine.empty())
      stored.systems.insert(ShownMachine(machine));
    stored.newest = std::max(stored.newest, row.started_utc);
  }
  const std::string results = program.store().results().string();
  if (program.json()) {
    json list = json::array();
    for (const auto& [id, stored] : experiments) {
      list.push_back({{"experiment", id},
                      {"trials", stored.trials},
                      {"failed", stored.failed},
                      {"disturbed", stored.disturbed},
                      {"left_out", stored.left_out},
                      {"cells", stored.cells.size()},
                      {"systems", stored.systems},
                      {"newest", stored.newest}});
    }
    PrintJson({{"results", results}, {"experiments", list}});
    return kDone;
  }
  for (const auto& [id, stored] : experiments) {
    std::string apart;
    const auto add = [&](std::size_t count, const char* what) {
      if (count > 0) apart += fmt::format(", {} {}", count, what);
    };
    add(stored.failed, "failed");
    add(stored.disturbed, "disturbed");
    add(stored.left_out, "left out");
    // Modelled trials have run on no system.
    const std::string where =
        stored.systems.empty() ? "" : fmt::format(" on {} system(s)", stored.systems.size());
    // Imported results have no date.
    const std::string newest = stored.newest.empty() ? "" : "; the newest of " + stored.newest;
    fmt::print("{:32} {} trial(s) of {} cell(s){}{}{}\n", id, stored.trials, stored.cells.size(),
               where, apart, newest);
  }
  fmt::print("{} experiment(s) in {}{}\n", experiments.size(), results,
             experiments.empty() ? "" : "; sparfuse status ID and sparfuse table ID say more");
  return kDone;
}

// Of each part how many cells have all their blocks, and which have no result, and why.
json PartsJson(const Program& program, const LoadedExperiment& loaded) {
  json parts = json::array();
  for (const PartResult& result : loaded.results) {
    json failures = json::array();
    std::size_t complete = 0;
    for (const CellResult& cell : result.cells) {
      complete += cell.trials.size() >= static_cast<std::size_t>(result.part->blocks);
      if (cell.failure.empty()) continue;
      json entry = {{"cell", CellName(cell.cell->config)}, {"failure", cell.failure}};
      for (const TrialRow& row : *loaded.rows) {
        if (row.config_hash != cell.cell->config_hash || row.status == "ok") continue;
        entry["trial_id"] = row.trial_id;
        entry["message"] = MessageOf(program, row);
      }
      failures.push_back(std::move(entry));
    }
    parts.push_back({{"part", result.part->id},
                     {"cells", result.cells.size()},
                     {"complete", complete},
                     {"blocks", result.part->blocks},
                     {"hardware", result.hardware},
                     {"without_result", failures}});
  }
  return parts;
}

json TrialsJson(const Program& program, const std::vector<const TrialRow*>& rows) {
  json trials = json::array();
  for (const TrialRow* row : rows) {
    trials.push_back({{"trial_id", row->trial_id},
                      {"status", row->status},
                      {"system", ShownMachine(MachineOf(*row))},
                      {"seconds", row->seconds},
                      {"failure", MessageOf(program, *row)},
                      {"disturbed", row->WhyDisturbed()},
                      {"annotations", row->WhyLeftOut()}});
  }
  return trials;
}

json SubmittedJson(Program& program, const Experiment& experiment) {
  json submitted = json::array();
  try {
    for (const auto& [block, state] : StatesOfBlocks(program, experiment)) {
      submitted.push_back(
          {{"state", state.KindName()}, {"job", state.job}, {"detail", state.detail}});
      submitted.back()["block"] = block;
    }
  } catch (const Error& error) {  // the results come from a machine with Slurm
    fmt::print(stderr, "warning: {}\n", error.what());
  }
  return submitted;
}

// How many imported results stand beside the trials of the parts.
std::size_t ImportedIn(const std::vector<PartResult>& results) {
  std::set<const TrialRow*> imported;
  for (const PartResult& result : results) {
    for (const ImportedCell& cell : result.imported) {
      for (const auto& [run, trial] : cell.result.trials) imported.insert(trial);
    }
  }
  return imported.size();
}

void PrintParts(const json& parts) {
  for (const json& part : parts) {
    fmt::print("{}: {} of {} cells complete ({} block(s))\n", part["part"].get<std::string>(),
               part["complete"].dump(), part["cells"].dump(), part["blocks"].dump());
    for (const json& failure : part["without_result"]) {
      fmt::print("  {}: {}{}\n", failure["failure"].get<std::string>(),
                 failure["cell"].get<std::string>(),
                 failure.contains("message") ? "\n    " + failure["trial_id"].get<std::string>() +
                                                   ": " + failure["message"].get<std::string>()
                                             : "");
    }
  }
}

void PrintSubmitted(const json& submitted) {
  for (const json& block : submitted) {
    const auto text = [&](const char* key) { return block[key].get<std::string>(); };
    fmt::print("block {}: {}{}{}\n", block["block"].dump(), text("state"),
               text("job").empty() ? "" : ", job " + text("job"),
               text("detail").empty() ? "" : " (" + text("detail") + ")");
  }
}

// Trials that annotations leave out, disturbed ones, and the systems of all.
void PrintTrials(const std::vector<const TrialRow*>& rows, const std::vector<PartResult>& results) {
  std::map<std::pair<std::string, std::string>, std::size_t> systems;  // hash and hardware
  for (const TrialRow* row : rows) {
    if (const auto why = row->WhyLeftOut(); !why.empty())
      fmt::print("left out: {}: {}\n", row->trial_id, fmt::join(why, "; "));
    if (const std::string machine = MachineOf(*row); !machine.empty())
      ++systems[{ShownMachine(machine), HardwareLine(*row)}];
  }
  if (const std::string warning = DisturbedWarning(results); !warning.empty())
    fmt::print("{}\n", warning);
  for (const auto& [system, count] : systems)
    fmt::print("system {}: {} trial(s), {}\n", system.first, count, system.second);
}

}  // namespace

int StatusVerb(Program& program, const std::string& name) {
  if (name.empty()) return PrintStore(program);
  const auto loaded = program.LoadWithResults(name);
  std::vector<const TrialRow*> rows;
  for (const TrialRow& row : *loaded->rows)
    if (row.experiment == loaded->experiment.id) rows.push_back(&row);
  const json parts = PartsJson(program, *loaded),
             submitted = SubmittedJson(program, loaded->experiment);
  const std::size_t imported = ImportedIn(loaded->results);
  if (program.json()) {
    PrintJson({{"experiment", loaded->experiment.id},
               {"parts", parts},
               {"trials", TrialsJson(program, rows)},
               {"submitted", submitted},
               {"imported", imported}});
    return kDone;
  }
  PrintParts(parts);
  PrintSubmitted(submitted);
  PrintTrials(rows, loaded->results);
  if (imported > 0) {
    fmt::print("{} imported result(s), which are not compared (sparfuse import list)\n", imported);
  }
  fmt::print("{} trial(s) of this experiment in {}\n", rows.size(),
             program.store().results().string());
  return kDone;
}

int IndexVerb(Program& program, const IndexRequest& request) {
  const Store& store = program.store();
  const StoreLock lock(store.results());
  if (request.empty_trash) {
    const auto deleted = store.trash().Empty(std::chrono::hours(0));
    for (const auto& folder : deleted) fmt::print("deleted {}\n", folder.string());
    if (deleted.empty()) fmt::print("{}: nothing to delete\n", store.trash().folder().string());
  }
  if (request.rebuild) {
    std::vector<std::string> problems;
    store.RebuildIndex(lock, problems);
    for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
    fmt::print("{}: {} trial(s)\n", store.index_path().string(), store.ReadRows().size());
  }
  return kDone;
}

int AnnotateVerb(Program& program, const AnnotateRequest& request) {
  const auto& [trial, reason] = request;
  const StoreLock lock(program.store().results());
  const Annotation annotation = program.store().Annotate(lock, trial, reason);
  fmt::print("{} is left out from now on: {}\n", trial, reason);
  if (program.json()) PrintJson(ToJson(annotation));
  return kDone;
}

}  // namespace sparfuse::harness
