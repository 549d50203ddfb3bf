// Runs, judges and draws an experiment or all experiments of a paper: `sparfuse reproduce`.
#include <fmt/format.h>

#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/cli/verdicts.hpp"
#include "harness/report/disturbed.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

std::string DisturbedWarningOf(const std::vector<std::unique_ptr<LoadedExperiment>>& all) {
  std::vector<const std::vector<PartResult>*> results;
  for (const auto& each : all) results.push_back(&each->results);
  return DisturbedWarning(results);
}

}  // namespace

int ReproduceVerb(Program& program, const ReproduceRequest& request) {
  RunOptions options = program.OptionsOfRuns(request.launch);
  auto experiments = program.LoadJoined({request.name}, request.with_methods, options);
  options.fresh = request.fresh;
  options.retry_disturbed = request.retry_disturbed;
  options.modelled_only = request.modelled;
  const RunSummary ran = RunAndCount(program, experiments, options);
  if (ran.interrupted) {
    fmt::print("interrupted; what is finished is kept, `sparfuse reproduce {}` goes on from here\n",
               request.name);
    return kInterrupted;
  }
  const auto all = program.WithResults(std::move(experiments));
  bool any_fails = false;
  for (const auto& each : all) {
    any_fails = any_fails || AnyClaimFails(each->results, request.modelled);
  }
  fs::path report;
  if (program.IsPaper(request.name)) {
    report = ReportFile(program, request.name);
    DrawPaper(program, request.name, all, report);
    fmt::print("\n");
    if (const std::string warning = DisturbedWarningOf(all); !warning.empty())
      fmt::print("warning: {}\n\n", warning);
    for (const auto& each : all) {
      fmt::print("{:28} {}\n", each->experiment.id, VerdictCounts(each->results));
    }
  } else {
    const LoadedExperiment& one = *all.front();
    const fs::path figures = FiguresFolder(program, one.experiment.id);
    report = ReportFile(program, one.experiment.id);
    DrawExperiment(program, "figure", one, figures);
    DrawExperiment(program, "report", one, report);
    fmt::print("\n");
    PrintTables(program, one, TableFormat::kMarkdown);
    fmt::print("figures: {}\n", figures.string());
  }
  fmt::print("report:  {}\n", report.string());
  if (ran.failed > 0) return kTrialFailed;
  return request.strict && any_fails ? kClaimNotReproduced : kDone;
}

}  // namespace sparfuse::harness
