#include "harness/run/runner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/launcher.hpp"
#include "harness/run/model_trial.hpp"
#include "harness/run/needed_profiles.hpp"
#include "harness/run/outcome.hpp"
#include "harness/run/progress.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string Stem(const PlannedTrial& trial) {
  const auto& config = trial.config;
  return fmt::format("{}-{}-w{}-{}-b{}", config.is_profile() ? "profile" : config.method,
                     config.workload, config.workers, trial.config_hash.substr(0, 8), trial.block);
}

std::string Name(const PlannedTrial& trial) {
  return fmt::format("{}/{} {}", trial.experiment, trial.part, Stem(trial));
}

// The thread pools that libraries bring, sized to what the trial is given, and what they compute
// with.
std::vector<std::pair<std::string, std::string>> ThreadEnvironment(const CellConfig& config) {
  const std::string threads = std::to_string(config.threads_per_worker);
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    environment.emplace_back(name, threads);
  }
  // cuBLAS then computes the same bits in every run, whatever else the card does.
  if (config.device == Place::kCuda && config.kind == TrialKind::kConvergence)
    environment.emplace_back("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  return environment;
}

// What the last line of a running trial's log says it does, or "".
std::string WhatItDoes(const fs::path& log) {
  std::ifstream in(log);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kMeasuringLine)) last = line.substr(std::strlen(kMeasuringLine));
  }
  return last;
}

// Seconds that are left, from history where there is some, else from this run's mean of modelled
// and of live trials.
class Clock {
 public:
  Clock(const std::vector<PlannedTrial>& first, const std::vector<PlannedTrial>& then) {
    for (const auto* trials : {&first, &then}) {
      for (const auto& trial : *trials) {
        trials_.push_back({trial.estimated_seconds, trial.config.modelled() ? 1u : 0u});
      }
    }
  }
  void Done(double seconds) {
    const std::size_t kind = trials_[done_++].kind;
    spent_[kind] += seconds;
    ++count_[kind];
  }
  // Below 0: not known.
  double Remaining() const {
    double sum = 0;
    for (std::size_t i = done_; i < trials_.size(); ++i) {
      const auto [estimate, kind] = trials_[i];
      if (estimate <= 0 && count_[kind] == 0) return -1;
      sum += estimate > 0 ? estimate : spent_[kind] / static_cast<double>(count_[kind]);
    }
    return sum;
  }

 private:
  struct Trial {
    double estimate;
    std::size_t kind;  // 0 live, 1 modelled
  };
  std::vector<Trial> trials_;
  std::size_t done_ = 0;
  double spent_[2] = {};
  std::size_t count_[2] = {};
};

class Runner {
 public:
  Runner(const Catalog& catalog, const Store& store, const RunOptions& options,
         const std::atomic<bool>& interrupted)
      : store_(store),
        options_(options),
        interrupted_(interrupted),
        lock_(store.results()),
        removed_(store.RemoveUnfinished(lock_)),
        index_(store.OpenIndex(lock_, problems_)),
        context_{catalog, store, DescribeSystem(), options.fresh},
        source_(DescribeSource(options.root.string())) {}

  RunSummary Run(const std::vector<Experiment>& experiments) {
    for (const auto& problem : problems_) fmt::print(stderr, "warning: {}\n", problem);
    if (removed_ > 0) {
      fmt::print(options_.progress, "removed {} unfinished trial(s) of an earlier run\n", removed_);
    }
    const auto rows = index_.Rows();
    TrialPlan live = PlanLive(context_, experiments, rows);
    if (options_.modelled_only) KeepProfiles(live);
    CheckLauncher(live);
    TrialPlan modelled = PlanModelled(context_, experiments, rows);
    summary_.present += live.present + modelled.present;
    // Those whose profile is measured in this run wait for it.
    const auto waiting = std::stable_partition(
        modelled.trials.begin(), modelled.trials.end(), [&](const PlannedTrial& trial) {
          return !trial.system.is_null() && !(options_.fresh && IsOwnCluster(trial.config.cluster));
        });
    std::vector<PlannedTrial> all(modelled.trials.begin(), waiting);
    all.insert(all.end(), live.trials.begin(), live.trials.end());
    const std::vector<PlannedTrial> later(waiting, modelled.trials.end());
    std::size_t again = 0;
    for (const auto& trial : all) again += trial.why.find(" before (") != std::string::npos;
    if (again > 0) {
      fmt::print(options_.progress, "{} trial(s) that failed before are run again\n", again);
    }
    for (const std::string& problem : ProblemsOf(live)) {
      fmt::print(options_.progress, "warning: {}\n", problem);
    }
    Progress progress(all.size() + later.size(), options_.progress);
    Clock clock(all, later);
    RunTrials(all, progress, clock);
    if (!interrupted_ && !later.empty()) {
      RunTrials(WithProfiles(later, experiments), progress, clock);
    }
    summary_.interrupted = interrupted_;
    return summary_;
  }

 private:
  static void KeepProfiles(TrialPlan& live) {
    std::erase_if(live.trials,
                  [](const PlannedTrial& trial) { return !trial.config.is_profile(); });
  }

  // The same trials with what was measured since; without those that the store has by now.
  std::vector<PlannedTrial> WithProfiles(const std::vector<PlannedTrial>& later,
                                         const std::vector<Experiment>& experiments) {
    std::set<std::pair<std::string, int>> wanted;
    for (const auto& trial : later) wanted.emplace(trial.config_hash, trial.block);
    TrialPlan plan = PlanModelled(context_, experiments, index_.Rows());
    std::erase_if(plan.trials, [&](const PlannedTrial& trial) {
      return !wanted.contains({trial.config_hash, trial.block});
    });
    summary_.present += later.size() - plan.trials.size();
    return std::move(plan.trials);
  }

  void CheckLauncher(const TrialPlan& live) const {
    if (!live.trials.empty() && ::access(options_.worker.c_str(), X_OK) != 0) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("no worker at {}: expected the executable sparfuse-worker; "
                                 "live trials need a build with LibTorch and MPI",
                                 options_.worker.string()));
    }
  }

  void RunTrials(const std::vector<PlannedTrial>& trials, Progress& progress, Clock& clock) {
    for (const auto& trial : trials) {
      if (interrupted_) return;
      progress.Begin(Name(trial), clock.Remaining());
      const auto begin = std::chrono::steady_clock::now();
      const json outcome = trial.config.modelled() ? RunModelled(trial) : RunLive(trial, progress);
      if (outcome.is_null()) return;  // interrupted: as if it had not begun
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      clock.Done(seconds);
      const bool ok = outcome["status"] == "ok";
      ++(ok ? summary_.ok : summary_.failed);
      std::string detail;
      if (!ok) {
        const json& failure = outcome["failure"];
        detail = fmt::format("{}: {}", failure["kind"].get<std::string>(),
                             failure["message"].get<std::string>());
      }
      progress.End(outcome["status"], detail, seconds, clock.Remaining());
    }
  }

  // A directory with config.json, as both kinds of trials find it.
  TrialConfig Prepare(const PlannedTrial& trial) const {
    const TrialConfig config{trial.config, static_cast<std::uint64_t>(trial.seed), trial.block,
                             store_.CreateTrial(lock_, trial.experiment, trial.part, Stem(trial))};
    WriteFileDurably(store_.Directory(config.trial_id) / "config.json",
                     ToJson(config).dump(1) + "\n");
    return config;
  }

  json RunLive(const PlannedTrial& trial, Progress& progress) {
    const std::string id = Prepare(trial).trial_id;
    const fs::path directory = store_.Directory(id);
    LaunchRequest request;
    request.argv = LaunchCommand(trial.config, options_.worker, fs::absolute(directory));
    request.environment = ThreadEnvironment(trial.config);
    request.log = directory / "log.txt";
    request.timeout_seconds = trial.timeout_seconds;
    const std::string started = UtcNow();
    const LaunchResult end = Launch(request, interrupted_, [&](double elapsed) {
      progress.Tick(elapsed, progress.terminal() ? WhatItDoes(request.log) : "");
    });
    if (end.end == LaunchResult::End::kInterrupted) {
      fs::remove_all(directory);
      return nullptr;
    }
    json environment = DescribeEnvironment();
    for (const auto& [name, value] : request.environment) environment[name] = value;
    return Finish(trial, id, CollectOutcome(directory, end, trial.timeout_seconds), started,
                  end.seconds, request.argv, environment);
  }

  json RunModelled(const PlannedTrial& trial) {
    if (trial.system.is_null()) {  // no row: nothing ran
      return {{"status", "skipped"}, {"failure", {{"kind", "config"}, {"message", trial.why}}}};
    }
    const TrialConfig config = Prepare(trial);
    const std::string& id = config.trial_id;
    const fs::path directory = store_.Directory(id);
    const std::string started = UtcNow();
    const auto begin = std::chrono::steady_clock::now();
    json outcome;
    try {
      outcome = RunModelledTrial(config, trial.profile, directory);
      WriteFileDurably(directory / "outcome.json", outcome.dump(1) + "\n");
      outcome = JudgeOutcome(outcome);
    } catch (const Error& error) {
      outcome = FailedOutcome(error);
    } catch (const std::exception& error) {
      outcome = FailedOutcome(Error(FailureKind::kInternal, error.what()));
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return Finish(trial, id, std::move(outcome), started, seconds, {"model"}, json::object());
  }

  json Finish(const PlannedTrial& planned, const std::string& id, json outcome,
              const std::string& started, double seconds, const std::vector<std::string>& argv,
              const json& environment) {
    json trial = std::move(outcome);
    trial["schema"] = kTrialSchema;
    trial["trial_id"] = id;
    trial["experiment"] = planned.experiment;
    trial["part"] = planned.part;
    trial["config"] = ToJson(planned.config);
    trial["config_hash"] = planned.config_hash;
    trial["system"] = planned.system;
    trial["system_hash"] = ContentHash(planned.system);
    trial["source"] = source_;
    trial["revisions"] = planned.revisions;
    trial["sources"] = planned.sources;
    trial["block"] = planned.block;
    trial["seed"] = planned.seed;
    trial["started_utc"] = started;
    trial["seconds"] = seconds;
    trial["argv"] = argv;
    trial["environment"] = environment;
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(store_.Directory(id))) {
      files.push_back(entry.path().filename().string());
    }
    std::sort(files.begin(), files.end());
    trial["files"] = files;
    store_.Finish(lock_, trial);
    index_.AddTrial(trial);
    return trial;
  }

  const Store& store_;
  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  StoreLock lock_;
  std::vector<std::string> problems_;
  std::size_t removed_;
  Index index_;
  PlanContext context_;
  json source_;
  RunSummary summary_;
};

}  // namespace

std::vector<std::string> LaunchCommand(const CellConfig& config, const fs::path& worker,
                                       const fs::path& directory) {
  std::vector<std::string> command;
  if (config.transport != Transport::kThreads) {  // NCCL's ranks find one another over MPI
    command.push_back("mpirun");
    if (::geteuid() == 0) command.push_back("--allow-run-as-root");
    for (const char* option :
         {"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-np"}) {
      command.push_back(option);
    }
    command.push_back(std::to_string(config.workers));
  }
  command.push_back(worker.string());
  command.push_back(directory.string());
  return command;
}

RunSummary RunExperiments(const Catalog& catalog, const Store& store,
                          const std::vector<Experiment>& experiments, const RunOptions& options,
                          const std::atomic<bool>& interrupted) {
  return Runner(catalog, store, options, interrupted).Run(experiments);
}

}  // namespace sparfuse::harness
