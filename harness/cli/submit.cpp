// Gives blocks of experiments to Slurm, and tells the state of these blocks: `sparfuse run
// --submit`.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "core/base/error.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

// All live trials of an experiment, stored ones too: which machine has run them is known only where
// they run.
TrialPlan AllLive(Program& program, const Experiment& experiment) {
  const PlanContext context{program.catalog(), program.store(), DescribeSystem(), true};
  return PlanLive(context, {experiment}, {});
}

std::string NewName(const Experiment& experiment) {
  std::random_device random;
  std::string id = experiment.id;
  std::ranges::replace(id, '/', '-');
  return fmt::format("sparfuse-{}-{:08x}", id, random());
}

std::vector<std::string> JobCommand(const Program& program, const Experiment& experiment,
                                    const SubmitRequest& request) {
  const auto absolute = [](const fs::path& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  std::vector<std::string> command = {fs::read_symlink("/proc/self/exe").string(),
                                      "--root",
                                      absolute(program.root()),
                                      "--results",
                                      absolute(program.store().results()),
                                      "--worker",
                                      absolute(program.worker()),
                                      "run",
                                      absolute(experiment.file),
                                      "--launch",
                                      "srun"};
  if (!request.launch.interface.empty()) {
    command.emplace_back("--interface");
    command.push_back(request.launch.interface);
  }
  if (request.launch.ship) command.emplace_back("--ship");
  if (request.launch.oversubscribe) command.emplace_back("--oversubscribe");
  if (request.fingerprint)
    command.emplace_back(*request.fingerprint ? "--fingerprint" : "--no-fingerprint");
  if (program.disturbed() == DisturbedTrials::kCount) command.emplace_back("--keep-disturbed");
  return command;
}

void CheckRequest(const SubmitRequest& request) {
  const LaunchOptions& launch = request.launch;
  if ((!launch.launch.empty() && launch.launch != "srun") || !launch.hostfile.empty()) {
    SPARFUSE_THROW(kConfig,
                   "--submit: ranks are started by srun within the job: expected no other "
                   "--launch, and no --hostfile");
  }
  if (request.sbatch_options.find('\n') != std::string::npos)
    SPARFUSE_THROW(kConfig, "--sbatch-options: expected options on one line");
}

JobScript ScriptOf(const Program& program, const Experiment& experiment, const TrialPlan& all,
                   const SubmitRequest& request, const fs::path& folder) {
  JobScript script;
  FitTo(all, script);
  script.options = request.sbatch_options;
  script.log_folder = fs::absolute(folder).lexically_normal().string();
  script.command = JobCommand(program, experiment, request);
  return script;
}

// The blocks with a trial that was called bad since and not replaced.
std::set<int> BlocksToRepeat(const TrialPlan& all, const std::vector<TrialRow>& rows) {
  std::set<int> blocks;
  for (const PlannedTrial& trial : all.trials) {
    bool called_bad = false, stands = false;
    for (const TrialRow& row : rows) {
      if (row.config_hash != trial.config_hash || row.block != trial.block) continue;
      stands = stands || row.counts();
      called_bad = called_bad || row.is_left_out();
    }
    if (called_bad && !stands) blocks.insert(trial.block);
  }
  return blocks;
}

// Whether Slurm may have queued the job although sbatch got no answer.
bool MayBeQueued(const std::string& name) {
  try {
    return QueuedBlocks().contains(name);
  } catch (const Error&) {
    return true;
  }
}

void Submit(Program& program, const Experiment& experiment, const SubmitRequest& request) {
  const TrialPlan all = AllLive(program, experiment);
  if (all.trials.empty()) {
    fmt::print("{}: no trial of it runs on hardware; `sparfuse run` needs no Slurm for it\n",
               experiment.id);
    return;
  }
  const SubmittedBlocks submitted(program.store().results(), experiment.id);
  MakeDirectories(submitted.folder());
  // Nobody else submits now, so the open jobs of all experiments are asked for.
  const StoreLock lock(program.store().results() / "submitted");
  JobScript script = ScriptOf(program, experiment, all, request, submitted.folder());
  std::set<int> left_alone;
  const std::set<int> repeated = BlocksToRepeat(all, program.Rows());
  for (const auto& [block, state] : submitted.States(WorkOfBlocks(all))) {
    const bool again = state.kind == BlockState::Kind::kDone && repeated.contains(block);
    (state.is_open() || again ? script.blocks : left_alone).insert(block);
  }
  if (!left_alone.empty()) {
    fmt::print("{}: block(s) {} are done, queued or running (`sparfuse status {}`)\n",
               experiment.id, Ranges(left_alone), experiment.file.string());
  }
  if (script.blocks.empty()) return;
  script.name = NewName(experiment);
  script.after = OpenJobs(program.store().results());
  const fs::path file = fs::path(script.log_folder) / (script.name + ".sh");
  WriteFileDurably(file, script.Text());
  Submission submission{script.name, "", script.blocks, file.string(), UtcNow()};
  submitted.Write(submission);
  bool ok = false;
  const std::string said =
      CommandOutput("sbatch --parsable " + ShellQuoted(file.string()) + " 2>&1", ok);
  if (!ok) {
    if (!MayBeQueued(submission.name)) submitted.Remove(submission);
    SPARFUSE_THROW(kConfig, fmt::format("sbatch {}: \"{}\"", file.string(), said));
  }
  submission.job = said.substr(said.rfind('\n') + 1);  // the last line, after warnings
  submission.job = submission.job.substr(0, submission.job.find(';'));
  submitted.Write(submission);
  fmt::print("{}: block(s) {} are job {}; `sparfuse status {}` follows it\n", experiment.id,
             Ranges(script.blocks), submission.job, experiment.file.string());
}

}  // namespace

int SubmitVerb(Program& program, const std::vector<Experiment>& experiments,
               const SubmitRequest& request) {
  CheckRequest(request);
  for (const Experiment& experiment : experiments) Submit(program, experiment, request);
  return kDone;
}

int PrintScripts(Program& program, const std::vector<Experiment>& experiments,
                 const SubmitRequest& request) {
  CheckRequest(request);
  for (const Experiment& experiment : experiments) {
    const TrialPlan all = AllLive(program, experiment);
    const SubmittedBlocks submitted(program.store().results(), experiment.id);
    JobScript script = ScriptOf(program, experiment, all, request, submitted.folder());
    script.name = "NAME";
    for (const auto& [block, work] : WorkOfBlocks(all)) script.blocks.insert(block);
    fmt::print("{}", script.Text());
  }
  return kDone;
}

void RecordBlock(Program& program, const std::vector<Experiment>& experiments, int block,
                 const RunSummary& summary) {
  for (const Experiment& experiment : experiments) {
    const SubmittedBlocks submitted(program.store().results(), experiment.id);
    const auto work = WorkOfBlocks(AllLive(program, experiment));
    if (SomethingIsAt(submitted.folder()) && work.contains(block))
      submitted.WriteEnd(block, work.at(block), summary.failed);
  }
}

std::map<int, BlockState> StatesOfBlocks(Program& program, const Experiment& experiment) {
  const SubmittedBlocks submitted(program.store().results(), experiment.id);
  if (!SomethingIsAt(submitted.folder())) return {};
  return submitted.States(WorkOfBlocks(AllLive(program, experiment)));
}

}  // namespace sparfuse::harness
