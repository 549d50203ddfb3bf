// Runs what the store lacks of experiments: `sparfuse run`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/cli/slurm/submit.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/run/plan/missing_controls.hpp"

namespace sparfuse::harness {

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

int RunVerb(Program& program, const RunRequest& request) {
  RunOptions options =
      program.OptionsOfRuns(request.submit.submit ? LaunchOptions() : request.launch);
  const auto experiments = program.LoadJoined(request.names, request.with_methods, options);
  if (request.submit.submit) {
    SubmitRequest submit = request.submit;
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
  if (summary.interrupted) {
    fmt::print("interrupted; what is finished is kept, `sparfuse run {}` goes on from here\n",
               fmt::join(request.names, " "));
    return kInterrupted;
  }
  return summary.failed > 0 ? kTrialFailed : kDone;
}

}  // namespace sparfuse::harness
