// Shows which trials would run, why, and how long they take, and runs them: `sparfuse plan`,
// `sparfuse run`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "harness/cli/traces/trace.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/plan/plan_checks.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/run/progress.hpp"
#include "harness/run/trial_writer.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

namespace fs = std::filesystem;

// A launch's command as `sparfuse run` starts it, except for values that are drawn then: the origin
// and number of its trials, and its nonce.
struct PlannedLaunch {
  Environment environment;
  std::vector<std::string> argv;
};

PlannedLaunch CommandOf(std::span<const PlannedTrial> launch, const Store& store,
                        const RunOptions& options) {
  std::vector<fs::path> directories;
  double timeout_seconds = 0;
  for (const PlannedTrial& trial : launch) {
    directories.push_back(fs::absolute(store.trials()) / trial.experiment / trial.part /
                          (StemOf(trial, "ORIGIN") + "-N"));
    timeout_seconds += trial.timeout_seconds;
  }
  const LaunchedWork work{launch.front().config, options.worker, directories, timeout_seconds,
                          "NONCE"};
  PlannedLaunch planned{LaunchEnvironment(work, options.launch), {}};
  planned.argv = LaunchCommand(work, options.launch, planned.environment);
  return planned;
}

int PrintCommands(const TrialPlan& live, Program& program, const LaunchOptions& how) {
  const RunOptions options = program.OptionsOfRuns(how);
  json list = json::array();
  for (std::span<const PlannedTrial> left = live.trials; !left.empty();) {
    const std::span<const PlannedTrial> launch = FirstLaunch(left);
    left = left.subspan(launch.size());
    CheckMayLaunch(launch.front().config, options.launch);
    const PlannedLaunch planned = CommandOf(launch, program.store(), options);
    if (!program.json()) fmt::print("{}\n", ShellLine(planned.environment, planned.argv));
    json environment = json::object();
    for (const auto& [name, value] : planned.environment) environment[name] = value;
    list.push_back(
        {{"argv", planned.argv}, {"environment", environment}, {"trials", launch.size()}});
  }
  if (program.json()) PrintJson(list);
  return kDone;
}

// Cells without any trial: as JSON, and as text that joins cells with one reason.
struct ExcludedCells {
  json list = json::array();
  std::map<std::pair<std::string, std::string>, std::size_t> by_reason;  // by place and reason
};

ExcludedCells ExcludedCellsOf(const std::vector<Experiment>& experiments) {
  ExcludedCells excluded;
  for (const Experiment& experiment : experiments) {
    for (const Part& part : experiment.parts) {
      const std::string place = experiments.size() > 1 ? experiment.id + " " + part.id : part.id;
      for (const ExcludedCell& out : part.excluded) {
        ++excluded.by_reason[{place, out.reason}];
        excluded.list.push_back({{"experiment", experiment.id},
                                 {"part", part.id},
                                 {"cell", out.cell},
                                 {"reason", out.reason}});
      }
    }
  }
  return excluded;
}

// All trials that are missing: live ones, then modelled ones.
TrialPlan WholePlan(const PlanContext& context, const std::vector<Experiment>& experiments,
                    const std::vector<TrialRow>& rows, TrialPlan live) {
  TrialPlan modelled = PlanModelled(context, experiments, rows);
  live.present += modelled.present;
  live.disturbed += modelled.disturbed;
  for (const auto& [part, trials] : modelled.other_sources) live.other_sources[part] += trials;
  live.trials.insert(live.trials.end(), modelled.trials.begin(), modelled.trials.end());
  return live;
}

std::vector<std::string> WarningsOf(const TrialPlan& plan,
                                    const std::vector<Experiment>& experiments) {
  std::vector<std::string> problems = ProblemsOf(plan);
  for (const Experiment& experiment : experiments) {
    for (auto* check : {&VacuousComparisons, &MissingControls, &LengthsInWindows,
                        &ResultsThatDependOnTimes, &MissingData}) {
      for (const std::string& warning : check(experiment))
        problems.push_back(experiments.size() > 1 ? experiment.id + ": " + warning : warning);
    }
  }
  return problems;
}

// The estimates of a plan's trials.
struct Estimated {
  double seconds = 0;
  std::size_t unknown = 0;  // trials without history

  explicit Estimated(const TrialPlan& plan) {
    for (const PlannedTrial& trial : plan.trials) {
      seconds += trial.estimated_seconds;
      unknown += trial.estimated_seconds <= 0;
    }
  }
};

json MissingJson(const TrialPlan& plan) {
  json list = json::array();
  for (const PlannedTrial& trial : plan.trials) {
    list.push_back({{"experiment", trial.experiment},
                    {"part", trial.part},
                    {"block", trial.block},
                    {"config_hash", trial.config_hash},
                    {"config", ToJson(trial.config)},
                    {"why", trial.why},
                    {"launch", trial.launch},
                    {"estimated_seconds", trial.estimated_seconds}});
  }
  return list;
}

// The part of a trial, as lines name it.
std::string PlaceOf(const PlannedTrial& trial, bool several_experiments) {
  return several_experiments ? trial.experiment + " " + trial.part : trial.part;
}

void PrintReasons(const TrialPlan& plan, bool several_experiments) {
  for (std::span<const PlannedTrial> left = plan.trials; !left.empty();) {
    const std::span<const PlannedTrial> launch = FirstLaunch(left);
    left = left.subspan(launch.size());
    if (launch.size() > 1) fmt::print("one launch of {} trials, in turn:\n", launch.size());
    for (const PlannedTrial& trial : launch) {
      fmt::print("{} block {}: {}\n    {}\n", PlaceOf(trial, several_experiments), trial.block,
                 CellName(trial.config), trial.why);
    }
  }
}

// A line for each part with trials to run.
void PrintPlannedParts(const TrialPlan& plan, bool several_experiments) {
  std::map<std::string, std::size_t> trials, launches;  // by part; launches of live trials
  for (const PlannedTrial& trial : plan.trials) ++trials[PlaceOf(trial, several_experiments)];
  for (std::span<const PlannedTrial> left = plan.trials; !left.empty();
       left = left.subspan(FirstLaunch(left).size())) {
    if (!left.front().config.modelled()) ++launches[PlaceOf(left.front(), several_experiments)];
  }
  for (const auto& [part, count] : trials) {
    fmt::print("{:36} {} trial(s) to run{}\n", part, count,
               launches.contains(part) ? fmt::format(" in {} launch(es)", launches[part]) : "");
  }
}

void PrintTotal(const TrialPlan& plan) {
  const Estimated estimated(plan);
  const std::size_t trials = plan.trials.size();
  fmt::print("{} trial(s) to run, {} in the store; {}{}\n", trials, plan.present,
             trials == 0                   ? "nothing is missing"
             : estimated.unknown == trials ? "no history to estimate the time from"
                                           : TimeLeft(estimated.seconds),
             estimated.unknown > 0 && estimated.unknown < trials
                 ? fmt::format(" for those with history, {} have none", estimated.unknown)
                 : "");
  if (plan.disturbed > 0) {
    fmt::print(
        "{} of those in the store were disturbed; `sparfuse run --retry-disturbed` runs "
        "them again\n",
        plan.disturbed);
  }
}

}  // namespace

int PlanVerb(Program& program, const PlanRequest& request) {
  RunOptions options =
      program.OptionsOfRuns(request.submit.submit ? LaunchOptions() : request.launch);
  program.RememberNodes(options);
  const std::vector<Experiment> experiments =
      program.LoadJoined({request.name}, request.with_methods, options);
  if (request.submit.submit) {
    SubmitRequest submit = request.submit;
    submit.launch = request.launch;
    return PrintScripts(program, experiments, submit);
  }
  const bool several = experiments.size() > 1;
  const auto rows = program.Rows();
  options.fresh = request.fresh;
  const PlanContext context = program.Context(options);
  TrialPlan live = PlanLive(context, experiments, rows);
  if (request.modelled) KeepProfiles(live);
  if (request.commands) return PrintCommands(live, program, request.launch);
  const TrialPlan plan = WholePlan(context, experiments, rows, std::move(live));
  const std::vector<std::string> problems = WarningsOf(plan, experiments);
  const ExcludedCells excluded = ExcludedCellsOf(experiments);
  if (program.json()) {
    const Estimated estimated(plan);
    PrintJson({{"experiment", several ? request.name : experiments.front().id},
               {"present", plan.present},
               {"disturbed", plan.disturbed},
               {"missing", MissingJson(plan)},
               {"excluded", excluded.list},
               {"problems", problems},
               {"estimated_seconds", estimated.seconds},
               {"without_history", estimated.unknown}});
    return kDone;
  }
  for (const std::string& problem : problems) fmt::print("warning: {}\n", problem);
  if (request.why) PrintReasons(plan, several);
  PrintPlannedParts(plan, several);
  for (const auto& [where, count] : excluded.by_reason)
    fmt::print("{:36} {} cell(s) excluded: {}\n", where.first, count, where.second);
  PrintTotal(plan);
  return kDone;
}

RunSummary RunAndCount(Program& program, const std::vector<Experiment>& experiments,
                       const RunOptions& options) {
  for (const Experiment& experiment : experiments) {
    for (const std::string& warning : MissingControls(experiment))
      fmt::print("warning: {}{}\n", experiments.size() > 1 ? experiment.id + ": " : "", warning);
  }
  const RunSummary summary = program.Run(experiments, options);
  fmt::print("{} ran well, {} failed, {} were in the store\n", summary.ok, summary.failed,
             summary.present);
  if (summary.reruns > 0)
    fmt::print("{} time(s) a disturbed trial ran again at once\n", summary.reruns);
  if (summary.disturbed > 0) {
    fmt::print("{} of those that ran well were disturbed{}\n", summary.disturbed,
               options.keep_disturbed ? ""
                                      : ": their times do not count; `sparfuse run "
                                        "--retry-disturbed` runs them again");
  }
  if (summary.failed > 0 && !summary.interrupted) {
    fmt::print("failed trials are rows of the store and run again with the next run\n");
  }
  return summary;
}

// Writes the traced steps of the experiments' trials in the form of torch.profiler, each in
// `kineto` of the trial's folder. What is there stays.
void WriteKinetoOf(Program& program, const std::vector<Experiment>& experiments) {
  std::size_t written = 0;
  for (const TrialRow& row : program.Rows()) {
    if (std::ranges::none_of(experiments,
                             [&](const Experiment& each) { return each.id == row.experiment; }))
      continue;
    const fs::path folder = program.store().results() / row.directory, out = folder / "kineto";
    if (fs::exists(out)) continue;
    written += !WriteKineto(folder, out).empty();
  }
  fmt::print("{} traced step{} written for torch.profiler's tools: trials/EXPERIMENT/.../kineto\n",
             written, written == 1 ? "" : "s");
}

int RunVerb(Program& program, const RunRequest& request) {
  RunOptions options =
      program.OptionsOfRuns(request.submit.submit ? LaunchOptions() : request.launch);
  const auto experiments = program.LoadJoined(request.names, request.with_methods, options);
  if (request.submit.submit) {
    SubmitRequest submit = request.submit;
    submit.launch = request.launch;
    submit.fingerprint = request.fingerprint;
    return SubmitVerb(program, experiments, submit);
  }
  options.fresh = request.fresh;
  options.retry_disturbed = request.retry_disturbed;
  options.block = request.block;
  options.fingerprint = request.fingerprint;
  const RunSummary summary = RunAndCount(program, experiments, options);
  if (request.block && !summary.interrupted)
    RecordBlock(program, experiments, *request.block, summary);
  if (request.kineto) WriteKinetoOf(program, experiments);
  if (summary.interrupted) {
    fmt::print("interrupted; finished trials are kept, and `sparfuse run {}` goes on from here\n",
               fmt::join(request.names, " "));
    return kInterrupted;
  }
  return summary.failed > 0 ? kTrialFailed : kDone;
}

}  // namespace sparfuse::harness
