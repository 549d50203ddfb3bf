#include "harness/cli/commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "core/adtopk/proofs/proofs.hpp"
#include "harness/cli/listing.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/files/canonical.hpp"
#include "harness/machine/doctor.hpp"
#include "harness/machine/system.hpp"
#include "harness/report/spec.hpp"
#include "harness/run/progress.hpp"
#include "harness/run/trial_plan.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void PrintJson(const json& value) {
  fmt::print("{}\n", value.dump(1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

const Catalog& Commands::catalog() {
  if (!catalog_) catalog_ = BuiltInCatalog();
  return *catalog_;
}

bool Commands::IsPaper(const std::string& name) const {
  return !fs::exists(ExperimentsFolder() / (name + ".toml")) &&
         !ExperimentFiles(ExperimentsFolder() / name).empty();
}

// A file, or the name of one beneath experiments/.
fs::path Commands::ResolveExperiment(const std::string& name) const {
  if (fs::path(name).extension() == ".toml") return name;
  const fs::path folder = ExperimentsFolder();
  const fs::path file = folder / (name + ".toml");
  if (fs::exists(file)) return file;
  std::vector<std::string> known;
  for (const auto& path : ExperimentFiles(folder)) {
    known.push_back(fs::relative(path, folder).replace_extension("").string());
  }
  if (IsPaper(name)) {
    std::erase_if(known, [&](const std::string& each) { return !each.starts_with(name + "/"); });
    SPARFUSE_THROW(kConfig, fmt::format("{} is a folder of experiments: expected one of {}", name,
                                        fmt::join(known, ", ")));
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("unknown experiment \"{}\"{} (sparfuse list experiments, or a path "
                             "that ends in .toml)",
                             name, Suggestion(name, known)));
}

Experiment Commands::Load(const std::string& name) {
  return LoadExperiment(ResolveExperiment(name), catalog(), store_.profiles(),
                        settings_.root / "results" / "published");
}

std::vector<Experiment> Commands::LoadAll(const std::string& name) {
  std::vector<Experiment> experiments;
  if (!IsPaper(name)) {
    experiments.push_back(Load(name));
    return experiments;
  }
  for (const auto& file : ExperimentFiles(ExperimentsFolder() / name)) {
    experiments.push_back(Load(file.string()));
  }
  return experiments;
}

// The index, brought up to date first where no run holds the store.
std::vector<TrialRow> Commands::Rows() {
  if (!fs::exists(store_.results())) return {};
  std::vector<std::string> problems;
  if (::access(store_.results().c_str(), W_OK) == 0) {
    if (const auto lock = StoreLock::TryLock(store_.results())) {
      auto rows = store_.OpenIndex(*lock, problems).Rows();
      for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
      return rows;
    }
  }
  return store_.ReadRows();
}

std::vector<std::unique_ptr<Commands::Loaded>> Commands::WithResults(
    std::vector<Experiment> experiments) {
  const auto rows = std::make_shared<const std::vector<TrialRow>>(Rows());
  const std::string machine = ContentHash(DescribeSystem());
  std::vector<std::unique_ptr<Loaded>> all;
  for (auto& experiment : experiments) {
    auto loaded = std::make_unique<Loaded>();
    loaded->experiment = std::move(experiment);
    loaded->parts = PartsWithTwins(loaded->experiment);
    loaded->rows = rows;
    loaded->results = ResultsOf(loaded->parts, catalog(), *rows, machine);
    all.push_back(std::move(loaded));
  }
  return all;
}

std::unique_ptr<Commands::Loaded> Commands::LoadWithResults(const std::string& name) {
  std::vector<Experiment> one;
  one.push_back(Load(name));
  return std::move(WithResults(std::move(one)).front());
}

int Commands::List(const std::string& what) {
  const json entries = harness::List(what, catalog(), ExperimentsFolder(),
                                     [this](const fs::path& file) { return Load(file.string()); });
  if (settings_.json) {
    PrintJson(entries);
  } else {
    fmt::print("{}", ListText(what, entries));
  }
  return kDone;
}

int Commands::Plan(const std::string& name, bool why) {
  const std::vector<Experiment> experiments = LoadAll(name);
  const bool several = experiments.size() > 1;
  const auto rows = Rows();
  const PlanContext context{catalog(), store_, DescribeSystem(), false};
  TrialPlan plan = PlanLive(context, experiments, rows);
  TrialPlan modelled = PlanModelled(context, experiments, rows);
  plan.present += modelled.present;
  plan.trials.insert(plan.trials.end(), modelled.trials.begin(), modelled.trials.end());
  double seconds = 0;
  std::size_t unknown = 0;
  json list = json::array();
  for (const auto& trial : plan.trials) {
    seconds += trial.estimated_seconds;
    unknown += trial.estimated_seconds <= 0;
    list.push_back({{"experiment", trial.experiment},
                    {"part", trial.part},
                    {"block", trial.block},
                    {"config_hash", trial.config_hash},
                    {"config", trial.config},
                    {"why", trial.why},
                    {"estimated_seconds", trial.estimated_seconds}});
  }
  if (settings_.json) {
    PrintJson({{"experiment", several ? name : experiments.front().id},
               {"present", plan.present},
               {"missing", list},
               {"problems", ProblemsOf(plan)},
               {"estimated_seconds", seconds},
               {"without_history", unknown}});
    return kDone;
  }
  for (const std::string& problem : ProblemsOf(plan)) fmt::print("warning: {}\n", problem);
  std::map<std::string, std::size_t> by_part;
  const auto place = [&](const PlannedTrial& trial) {
    return several ? trial.experiment + " " + trial.part : trial.part;
  };
  for (const auto& trial : plan.trials) ++by_part[place(trial)];
  if (why) {
    for (const auto& trial : plan.trials) {
      fmt::print("{} block {}: {}\n    {}\n", place(trial), trial.block, CellName(trial.config),
                 trial.why);
    }
  }
  for (const auto& [part, count] : by_part) fmt::print("{:36} {} trial(s) to run\n", part, count);
  fmt::print("{} trial(s) to run, {} in the store; {}{}\n", plan.trials.size(), plan.present,
             plan.trials.empty()             ? "nothing is missing"
             : unknown == plan.trials.size() ? "no history to estimate the time from"
                                             : TimeLeft(seconds),
             unknown > 0 && unknown < plan.trials.size()
                 ? fmt::format(" for those with history, {} have none", unknown)
                 : "");
  return kDone;
}

RunSummary Commands::RunAll(const std::vector<Experiment>& experiments, bool fresh, bool modelled) {
  const RunOptions options{settings_.root, settings_.worker, fresh, modelled};
  const RunSummary summary =
      RunExperiments(catalog(), store_, experiments, options, *settings_.interrupted);
  fmt::print("{} ran well, {} failed, {} were in the store\n", summary.ok, summary.failed,
             summary.present);
  if (summary.failed > 0 && !summary.interrupted) {
    fmt::print("failed trials are rows of the store and run again with the next run\n");
  }
  return summary;
}

int Commands::Run(const std::vector<std::string>& names, bool fresh) {
  std::vector<Experiment> experiments;
  for (const auto& name : names) {
    for (auto& experiment : LoadAll(name)) experiments.push_back(std::move(experiment));
  }
  const RunSummary summary = RunAll(experiments, fresh, false);
  if (summary.interrupted) {
    fmt::print("interrupted; what is finished is kept, `sparfuse run {}` goes on from here\n",
               fmt::join(names, " "));
    return kInterrupted;
  }
  return summary.failed > 0 ? kTrialFailed : kDone;
}

int Commands::Status(const std::string& name) {
  const auto loaded = LoadWithResults(name);
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
  for (const auto& row : *loaded->rows) {
    if (row.experiment != loaded->experiment.id) continue;
    trials.push_back({{"trial_id", row.trial_id},
                      {"status", row.status},
                      {"seconds", row.seconds},
                      {"failure", row.failure_message},
                      {"annotations", row.annotations}});
  }
  if (settings_.json) {
    PrintJson({{"experiment", loaded->experiment.id}, {"parts", parts}, {"trials", trials}});
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
  for (const auto& trial : trials) {
    if (trial["annotations"].empty()) continue;
    fmt::print("left out: {} ({})\n", trial["trial_id"].get<std::string>(),
               trial["annotations"].dump());
  }
  fmt::print("{} trial(s) of this experiment in {}\n", trials.size(), store_.results().string());
  return kDone;
}

int Commands::Table(const std::string& name, TableFormat format) {
  const auto loaded = LoadWithResults(name);
  const auto tables = TablesOf(loaded->parts, loaded->results, catalog());
  if (settings_.json) {
    json list = json::array();
    for (const auto& table : tables) list.push_back(TableJson(table));
    PrintJson(list);
    return kDone;
  }
  for (const auto& table : tables) fmt::print("{}\n", harness::Render(table, format));
  return kDone;
}

int Commands::RebuildIndex() {
  std::vector<std::string> problems;
  const StoreLock lock(store_.results());
  store_.RebuildIndex(lock, problems);
  for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  fmt::print("{}: {} trial(s)\n", store_.index_path().string(), store_.ReadRows().size());
  return kDone;
}

int Commands::Prove(const std::string& method) {
  const std::vector<ProofRow> rows = ProveAdTopK();
  json list = json::array();
  bool all = true;
  for (const ProofRow& row : rows) {
    all = all && row.holds;
    list.push_back({{"check", row.check},
                    {"statement", row.statement},
                    {"source", row.source},
                    {"measured", row.measured},
                    {"relation", RelationSign(row.relation)},
                    {"bound", row.bound},
                    {"holds", row.holds}});
    if (settings_.json) continue;
    fmt::print("{:4} {:9} {:>12.5g} {:2} {:<12.5g} {}  [{}]\n", row.check,
               row.holds ? "holds" : "DOES NOT", row.measured, RelationSign(row.relation),
               row.bound, row.statement, row.source);
  }
  if (settings_.json) PrintJson(list);
  if (!settings_.json) {
    fmt::print("{}: {} of {} statements hold\n", method,
               std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.holds; }),
               rows.size());
  }
  return all ? kDone : kClaimNotReproduced;
}

int Commands::Doctor() {
  const auto findings = Examine({settings_.root, settings_.results, settings_.worker, Python()});
  json list = json::array();
  for (const auto& finding : findings) {
    const char* level = finding.level == Finding::Level::kGood   ? "ok"
                        : finding.level == Finding::Level::kNote ? "note"
                                                                 : "warning";
    list.push_back({{"what", finding.what}, {"level", level}, {"message", finding.message}});
    if (!settings_.json) fmt::print("{:8} {:24} {}\n", level, finding.what, finding.message);
  }
  if (settings_.json) PrintJson(list);
  return kDone;
}

int Commands::Annotate(const std::string& trial, const std::string& reason) {
  const StoreLock lock(store_.results());
  const json annotation = store_.Annotate(lock, trial, reason);
  fmt::print("{} is left out from now on: {}\n", trial, reason);
  if (settings_.json) PrintJson(annotation);
  return kDone;
}

}  // namespace sparfuse::harness
