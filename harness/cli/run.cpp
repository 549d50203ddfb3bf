// Runs what the store lacks of experiments: `sparfuse run`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

RunSummary RunAndCount(Program& program, const std::vector<Experiment>& experiments,
                       const RunOptions& options) {
  const RunSummary summary = program.Run(experiments, options);
  fmt::print("{} ran well, {} failed, {} were in the store\n", summary.ok, summary.failed,
             summary.present);
  if (summary.failed > 0 && !summary.interrupted) {
    fmt::print("failed trials are rows of the store and run again with the next run\n");
  }
  return summary;
}

int RunVerb(Program& program, const RunRequest& request) {
  std::vector<Experiment> experiments;
  for (const auto& name : request.names) {
    for (auto& experiment : program.LoadAll(name)) experiments.push_back(std::move(experiment));
  }
  const RunSummary summary = RunAndCount(program, experiments, {.fresh = request.fresh});
  if (summary.interrupted) {
    fmt::print("interrupted; what is finished is kept, `sparfuse run {}` goes on from here\n",
               fmt::join(request.names, " "));
    return kInterrupted;
  }
  return summary.failed > 0 ? kTrialFailed : kDone;
}

}  // namespace sparfuse::harness
