// Says what the store has of an experiment and what failed: `sparfuse status`.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "harness/cli/slurm/submit.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/report/disturbed.hpp"
#include "harness/report/machines.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int StatusVerb(Program& program, const std::string& name) {
  const auto loaded = program.LoadWithResults(name);
  json parts = json::array();
  for (const auto& result : loaded->results) {
    json failures = json::array();
    std::size_t complete = 0;
    for (const auto& cell : result.cells) {
      complete += cell.trials.size() >= static_cast<std::size_t>(result.part->blocks);
      if (cell.failure.empty()) continue;
      json entry = {{"cell", CellName(cell.cell->config)}, {"failure", cell.failure}};
      for (const auto& row : *loaded->rows) {
        if (row.config_hash != cell.cell->config_hash || row.status == "ok") continue;
        entry["trial_id"] = row.trial_id;
        entry["message"] = row.failure_message;
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
  std::vector<json> trials;
  std::map<std::pair<std::string, std::string>, std::size_t> systems;  // hash and hardware
  for (const auto& row : *loaded->rows) {
    if (row.experiment != loaded->experiment.id) continue;
    if (const std::string machine = MachineOf(row); !machine.empty())
      ++systems[{ShownMachine(machine), HardwareLine(row)}];
    trials.push_back({{"trial_id", row.trial_id},
                      {"status", row.status},
                      {"system", ShownMachine(MachineOf(row))},
                      {"seconds", row.seconds},
                      {"failure", row.failure_message},
                      {"disturbed", row.WhyDisturbed()},
                      {"annotations", row.annotations}});
  }
  json submitted = json::array();
  try {
    submitted = StatesOfBlocks(program, loaded->experiment);
  } catch (const Error& error) {  // results were copied from where there is Slurm
    fmt::print(stderr, "warning: {}\n", error.what());
  }
  std::set<const TrialRow*> imported;  // beside the trials of any part
  for (const auto& result : loaded->results) {
    for (const ImportedCell& cell : result.imported) {
      for (const auto& [run, trial] : cell.result.trials) imported.insert(trial);
    }
  }
  if (program.json()) {
    PrintJson({{"experiment", loaded->experiment.id},
               {"parts", parts},
               {"trials", trials},
               {"submitted", submitted},
               {"imported", imported.size()}});
    return kDone;
  }
  for (const auto& part : parts) {
    fmt::print("{}: {} of {} cells complete ({} block(s))\n", part["part"].get<std::string>(),
               part["complete"].dump(), part["cells"].dump(), part["blocks"].dump());
    for (const auto& failure : part["without_result"]) {
      fmt::print("  {}: {}{}\n", failure["failure"].get<std::string>(),
                 failure["cell"].get<std::string>(),
                 failure.contains("message") ? "\n    " + failure["trial_id"].get<std::string>() +
                                                   ": " + failure["message"].get<std::string>()
                                             : "");
    }
  }
  for (const auto& block : submitted) {
    const auto text = [&](const char* key) { return block[key].get<std::string>(); };
    fmt::print("block {}: {}{}{}\n", block["block"].dump(), text("state"),
               text("job").empty() ? "" : ", job " + text("job"),
               text("detail").empty() ? "" : " (" + text("detail") + ")");
  }
  for (const auto& trial : trials) {
    if (trial["annotations"].empty()) continue;
    fmt::print("left out: {} ({})\n", trial["trial_id"].get<std::string>(),
               trial["annotations"].dump());
  }
  if (const std::string warning = DisturbedWarning(loaded->results); !warning.empty())
    fmt::print("{}\n", warning);
  for (const auto& [system, count] : systems)
    fmt::print("system {}: {} trial(s), {}\n", system.first, count, system.second);
  if (!imported.empty()) {
    fmt::print("{} imported result(s) beside, compared with nothing (sparfuse import list)\n",
               imported.size());
  }
  fmt::print("{} trial(s) of this experiment in {}\n", trials.size(),
             program.store().results().string());
  return kDone;
}

}  // namespace sparfuse::harness
