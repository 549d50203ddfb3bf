#include "harness/run/runner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>

#include "core/base/clock.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/disturbance.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/live_launches.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/run/live/run_fingerprints.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/run/plan/plan_checks.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/run/progress.hpp"
#include "harness/run/trial_writer.hpp"
#include "harness/store/origin.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string Name(const PlannedTrial& trial) {
  return fmt::format("{}/{} {}", trial.experiment, trial.part, StemOf(trial));
}

// The name of a launch: the common properties of its trials.
std::string NameOf(std::span<const PlannedTrial> launch) {
  const PlannedTrial& first = launch.front();
  if (launch.size() == 1) return Name(first);
  return fmt::format("{}/{} {}-w{}-b{}, {} trials side by side", first.experiment, first.part,
                     first.config.workload, first.config.workers, first.block, launch.size());
}

class Runner {
 public:
  Runner(const Catalog& catalog, const Store& store, const RunOptions& options,
         const std::atomic<bool>& interrupted)
      : store_(store),
        options_(options),
        interrupted_(interrupted),
        lock_(store.results()),
        swept_(store.RemoveUnfinished(lock_)),
        index_(store.OpenIndex(lock_, problems_)),
        context_{catalog,
                 store,
                 DescribeSystem(),
                 options.fresh,
                 options.retry_disturbed,
                 {},
                 {options.launch.across_hosts(), options.nodes.value_or(std::vector<Node>())}},
        writer_(store, lock_, DescribeSource(options.root.string())),
        fingerprints_(lock_, store_, options, interrupted, [&options](const std::string& line) {
          fmt::print(options.progress, "{}\n", line);
        }) {}

  RunSummary Run(const std::vector<Experiment>& experiments) {
    for (const auto& problem : problems_) fmt::print(stderr, "warning: {}\n", problem);
    NameSwept();
    const auto rows = Rows();
    disturbances_.emplace(rows);
    TrialPlan live = PlanLive(context_, experiments, rows);
    if (options_.modelled_only) KeepProfiles(live);
    CheckLauncher(live);
    TrialPlan modelled = PlanModelled(context_, experiments, rows);
    summary_.present += live.present + modelled.present;
    for (TrialPlan* plan : {&live, &modelled}) {
      std::erase_if(plan->trials, [&](const PlannedTrial& trial) {
        // Profiles have block 0 and serve all blocks.
        return options_.block && trial.block != *options_.block && !trial.config.is_profile();
      });
    }
    RequireData(live);
    if (!live.trials.empty()) BeginLaunches();
    if (interrupted_) {
      summary_.interrupted = true;
      return summary_;
    }
    // Modelled trials wait if this run measures their profile.
    const auto waiting = std::stable_partition(
        modelled.trials.begin(), modelled.trials.end(), [&](const PlannedTrial& trial) {
          return trial.system.is_known() && !(options_.fresh && IsOwnCluster(trial.config.cluster));
        });
    std::vector<PlannedTrial> all(modelled.trials.begin(), waiting);
    all.insert(all.end(), live.trials.begin(), live.trials.end());
    const std::vector<PlannedTrial> later(waiting, modelled.trials.end());
    SayWhatIsAhead(all, live);
    fingerprints_.Before(live);
    progress_.emplace(all.size() + later.size(), options_.progress);
    remaining_.emplace(all, later);
    RunTrials(all);
    if (!interrupted_ && !later.empty()) RunTrials(WithProfiles(later, experiments));
    if (fingerprints_.OfTrials() && launches_)
      fingerprints_.After(launches_->Method(store_.results() / "fingerprints" / "hostfile", 1));
    summary_.interrupted = interrupted_;
    return summary_;
  }

 private:
  // Checks the data before anything starts.
  static void RequireData(const TrialPlan& live) {
    std::vector<const CellConfig*> cells;
    for (const PlannedTrial& trial : live.trials) cells.push_back(&trial.config);
    const std::vector<std::string> missing = MissingDataOf(cells);
    if (!missing.empty()) SPARFUSE_THROW(kData, fmt::format("{}", fmt::join(missing, "\n")));
  }

  // May take minutes if hosts are sent their files. An error is ignored if the run was interrupted.
  void BeginLaunches() {
    try {
      launches_.emplace(context_.catalog, options_, interrupted_);
    } catch (const Error&) {
      if (!interrupted_) throw;
    }
  }

  void NameSwept() const {
    for (const fs::path& folder : swept_.unknown) {
      fmt::print(options_.progress, "{}: not a trial of sparfuse; left in place\n",
                 folder.string());
    }
    for (const fs::path& folder : swept_.in_trash) RemoveSession(folder / kSessionRecord);
    if (swept_.unfinished.empty()) return;
    fmt::print(options_.progress, "moved {} unfinished trial(s) of an earlier run to {}: {}\n",
               swept_.unfinished.size(), store_.trash().folder().string(),
               fmt::join(swept_.unfinished, ", "));
  }

  // Prints how many trials failed before, and what hinders live trials.
  void SayWhatIsAhead(std::span<const PlannedTrial> trials, const TrialPlan& live) const {
    std::size_t again = 0;
    for (const auto& trial : trials) again += trial.why.find(" before (") != std::string::npos;
    if (again > 0) {
      fmt::print(options_.progress, "{} trial(s) that failed before are run again\n", again);
    }
    for (const std::string& problem : ProblemsOf(live)) {
      fmt::print(options_.progress, "warning: {}\n", problem);
    }
    if (live.trials.empty() || options_.keep_disturbed) return;
    if (const std::string now = WhatDisturbsNow(live.trials.front().quiet); !now.empty())
      fmt::print(options_.progress, "warning: {}\n", now);
  }

  std::vector<TrialRow> Rows() {
    std::vector<TrialRow> rows = index_.Rows();
    TellStoresApart(rows, store_.results());
    return rows;
  }

  // Plans the same trials again with new profiles, without trials that the store has by now.
  std::vector<PlannedTrial> WithProfiles(const std::vector<PlannedTrial>& later,
                                         const std::vector<Experiment>& experiments) {
    std::set<std::pair<std::string, int>> wanted;
    for (const auto& trial : later) wanted.emplace(trial.config_hash, trial.block);
    TrialPlan plan = PlanModelled(context_, experiments, Rows());
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
                                 "{} need a build with LibTorch and MPI (scripts/setup)",
                                 options_.worker.string(),
                                 options_.modelled_only
                                     ? "profiles of this machine, which modelled trials take,"
                                     : "live trials"));
    }
    if (!live.trials.empty()) CheckMayLaunch(options_.launch);
    for (const PlannedTrial& trial : live.trials) CheckMayLaunch(trial.config, options_.launch);
  }

  struct EndedTrial {
    const PlannedTrial* planned;
    Trial trial;
    double seconds = 0;
    bool skipped = false;  // nothing ran; its failure says why
  };

  void RunTrials(std::span<const PlannedTrial> trials) {
    const Interruption interruption;
    while (!trials.empty() && !interrupted_) {
      const std::span<const PlannedTrial> launch = FirstLaunch(trials);
      progress_->Begin(NameOf(launch), remaining_->Seconds());
      for (const EndedTrial& trial : launch.front().config.modelled()
                                         ? std::vector{RunModelled(launch.front())}
                                         : RunUntilQuiet(launch)) {
        Ended(trial);
      }
      trials = trials.subspan(launch.size());
      RunElsewhere();
    }
  }

  // Runs trials again that failed on a node that is excluded by now. The failures stay stored.
  void RunElsewhere() {
    const std::vector<PlannedTrial> again =
        launches_ ? launches_->TakeFailed() : std::vector<PlannedTrial>();
    if (again.empty() || interrupted_) return;
    progress_->Say(fmt::format("{} trial(s) that failed there run again", again.size()));
    progress_->Expect(again.size());
    remaining_->Insert(again);
    RunTrials(again);
  }

  // Prints and counts the result of a trial.
  void Ended(const EndedTrial& ended) {
    remaining_->Done(ended.seconds);
    const Trial& trial = ended.trial;
    const bool ok = trial.status == TrialStatus::kOk;
    ++(ok ? summary_.ok : summary_.failed);
    std::string detail;
    if (ok && IsDisturbed(trial)) {
      ++summary_.disturbed;
      detail = "disturbed: " + trial.quiet->why;
    }
    if (trial.failure) detail = trial.failure->kind + ": " + trial.failure->message;
    progress_->End(Name(*ended.planned), ended.skipped ? "skipped" : NameOf(trial.status), detail,
                   ended.seconds, remaining_->Seconds());
  }

  static bool IsDisturbed(const Trial& trial) { return trial.quiet && trial.quiet->disturbed; }

  // If a trial was disturbed, its whole launch runs again, because compared trials take turns.
  std::vector<EndedTrial> RunUntilQuiet(std::span<const PlannedTrial> launch) {
    auto begin = std::chrono::steady_clock::now();
    std::vector<EndedTrial> ended = RunLive(launch);
    for (int times = 1; !options_.keep_disturbed && !interrupted_; ++times) {
      const auto disturbed = std::ranges::find_if(ended, [](const EndedTrial& each) {
        return each.trial.status == TrialStatus::kOk && IsDisturbed(each.trial);
      });
      if (disturbed == ended.end()) break;
      const Quiet quiet = *disturbed->trial.quiet;
      if (!disturbances_->RunsAgain(*disturbed->planned, quiet, times, SecondsSince(begin),
                                    remaining_->Planned())) {
        break;
      }
      summary_.reruns += ended.size();
      progress_->Say(
          fmt::format("{} was disturbed ({}) and runs again", NameOf(launch), quiet.why));
      begin = std::chrono::steady_clock::now();
      std::vector<EndedTrial> again = RunLive(launch);
      if (interrupted_) break;  // the earlier results stand
      ended = std::move(again);
    }
    return ended;
  }

  // Runs the trials of one launch. Trials that failed only because of another are launched again at
  // once. Returns the trials that ended, which are all unless the run is interrupted.
  std::vector<EndedTrial> RunLive(std::span<const PlannedTrial> planned) {
    std::vector<EndedTrial> ended;
    std::deque<std::vector<LiveTrial>> launches(1);
    for (const PlannedTrial& trial : planned) {
      const std::string id = writer_.Begin(trial).trial_id;
      launches[0].push_back({&trial, id, fs::absolute(store_.Directory(id))});
    }
    for (int number = 1; !launches.empty(); ++number) {
      const std::vector<LiveTrial> trials = std::move(launches.front());
      launches.pop_front();
      if (interrupted_) {
        for (const LiveTrial& trial : trials) store_.Discard(lock_, trial.id);
        continue;
      }
      std::vector<LiveTrial> again;
      const bool alone = LaunchOnce(trials, number, ended, again);
      if (again.empty()) continue;
      progress_->Say(fmt::format("{} trial(s) of this launch are launched again{}", again.size(),
                                 alone ? ", one at a time" : ""));
      if (!alone) launches.push_back({});
      for (LiveTrial& trial : again) {
        EmptyForAnotherLaunch(trial.directory);
        if (alone) launches.push_back({});
        launches.back().push_back(std::move(trial));
      }
    }
    return ended;
  }

  // Finishes the trials that ended, adds them to `all_ended`, and puts the others into `again`.
  // Returns whether the others must be launched one at a time. If the run is interrupted, no trial
  // is left over.
  bool LaunchOnce(const std::vector<LiveTrial>& trials, int number,
                  std::vector<EndedTrial>& all_ended, std::vector<LiveTrial>& again) {
    EndedLaunch launch = launches_->Run(trials, number, *progress_);
    if (launch.end.end == LaunchResult::End::kInterrupted) {
      for (const LiveTrial& trial : trials) store_.Discard(lock_, trial.id);
      return false;
    }
    HowItRan& how = launch.how;
    how.fingerprint = fingerprints_.OfTrials();
    const auto& directories = launch.directories;
    const LaunchEnd found = EndOf(directories, launch.end);
    std::vector<const LiveTrial*> ended;
    std::vector<Outcome> outcomes;
    std::vector<double> turns;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (found.trials[i] == TrialEnd::kAgain) {
        again.push_back(trials[i]);
        continue;
      }
      if (i > 0) WriteFileDurably(directories[i] / "log.txt", ReadFile(launch.log));
      fs::remove(directories[i] / kTurnFile);
      const LaunchResult well{.end = LaunchResult::End::kExited, .exit_code = 0};
      ended.push_back(&trials[i]);
      outcomes.push_back(CollectOutcome(directories[i],
                                        found.trials[i] == TrialEnd::kFailed ? launch.end : well,
                                        launch.timeout_seconds));
      turns.push_back(outcomes.back().turn_seconds);
    }
    launches_->Judge(ended, outcomes, launch, *progress_);
    const LaunchTime time = TimeOf(turns, launch.end.seconds, again.empty());
    launch.record.start_seconds = time.start_seconds;
    how.launch = launch.PutNamesApart();
    for (std::size_t i = 0; i < ended.size(); ++i) {
      how.seconds = time.trial_seconds[i];
      const PlannedTrial& planned = *ended[i]->planned;
      all_ended.push_back(
          {&planned, Finish(planned, ended[i]->id, std::move(outcomes[i]), how), how.seconds});
    }
    return found.alone;
  }

  EndedTrial RunModelled(const PlannedTrial& trial) {
    if (!trial.system.is_known()) {  // no row: nothing ran
      EndedTrial ended{&trial, {}, 0, true};
      ended.trial.status = TrialStatus::kFailed;
      ended.trial.failure = Failure{.kind = "config", .message = trial.why};
      return ended;
    }
    const TrialConfig config = writer_.Begin(trial);
    const std::string& id = config.trial_id;
    const fs::path directory = store_.Directory(id);
    const std::string started = UtcNow();
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome;
    try {
      const CellConfig& cell = config.cell;
      std::function<ProfileOutcomes(int)> drawn;
      if (IsDeclared(store_.profiles(), cell.cluster)) {
        drawn = [&](int draw) {
          return DeclaredProfile(DrawnCluster(store_.profiles(), cell.cluster, draw), cell);
        };
      }
      outcome = RunModelledTrial(config, trial.profile, drawn, directory);
      WriteFileDurably(directory / "outcome.json", ToJson(outcome).dump(1) + "\n");
      outcome = JudgeOutcome(std::move(outcome));
    } catch (const Error& error) {
      outcome = FailedOutcome(error);
    } catch (const std::exception& error) {
      outcome = FailedOutcome(Error(FailureKind::kInternal, error.what()));
    }
    const HowItRan how{started, SecondsSince(begin), {"model"}, {}, {}};
    return {&trial, Finish(trial, id, std::move(outcome), how), how.seconds};
  }

  Trial Finish(const PlannedTrial& planned, const std::string& id, Outcome outcome,
               const HowItRan& how) {
    if (outcome.quiet) outcome.quiet = disturbances_->Judge(planned, outcome.quiet);
    Trial trial = writer_.Finish(planned, id, std::move(outcome), how);
    if (trial.fingerprint) fingerprints_.Ran(id);
    index_.AddTrial(trial);
    return trial;
  }

  const Store& store_;
  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  StoreLock lock_;
  std::vector<std::string> problems_;
  SweptTrials swept_;
  Index index_;
  PlanContext context_;
  TrialWriter writer_;
  RunFingerprints fingerprints_;
  std::optional<Disturbances> disturbances_;
  std::optional<LiveLaunches> launches_;  // only if there are live trials
  std::optional<Progress> progress_;
  std::optional<RemainingTime> remaining_;
  RunSummary summary_;
};

}  // namespace

RunSummary RunExperiments(const Catalog& catalog, const Store& store,
                          const std::vector<Experiment>& experiments, const RunOptions& options,
                          const std::atomic<bool>& interrupted) {
  return Runner(catalog, store, options, interrupted).Run(experiments);
}

}  // namespace sparfuse::harness
