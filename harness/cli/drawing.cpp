#include "harness/cli/drawing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/figures/skill.hpp"
#include "harness/report/findings.hpp"
#include "harness/report/spec.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Writes the specification of an experiment that sparfuse_report reads.
fs::path WriteSpec(Program& program, const LoadedExperiment& loaded) {
  const fs::path spec = ReportFile(program, loaded.experiment.id).replace_filename("spec.json");
  WriteFileDurably(spec, ExperimentSpec(loaded.experiment, loaded.parts, loaded.results,
                                        program.catalog(), program.store().results())
                                 .dump(1) +
                             "\n");
  return spec;
}

// Throws Error{kConfig} if nothing has run yet. `name` is the argument for `sparfuse run`.
void NeedTrials(const Program& program, const std::string& name) {
  if (!Index::IsThere(program.store().index_path())) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: nothing has run yet; `sparfuse run {}` comes first",
                                        program.store().results().string(), name));
  }
}

// Runs sparfuse_report on the store.
void Draw(const Program& program, const std::vector<std::string>& arguments,
          const std::string& name) {
  NeedTrials(program, name);
  RenderFile(program, arguments, false);
}

}  // namespace

void RenderFile(const Program& program, std::vector<std::string> arguments, bool quiet) {
  const fs::path package = program.root() / "harness" / "figures" / "sparfuse_report";
  if (!fs::exists(package))
    SPARFUSE_THROW(kConfig, "no " + package.string() + ": expected the project's root with --root");
  if (quiet) arguments.emplace_back("--quiet");
  if (const int status = RunPackage(program, package, arguments); status != 0) {
    SPARFUSE_THROW(kInternal, fmt::format("{} {} ended with status {}", package.string(),
                                          arguments.front(), status));
  }
}

fs::path ReportFile(const Program& program, const std::string& id) {
  const fs::path folder = program.store().results() / "reports" / id;
  MakeDirectories(folder);
  return folder / "report.html";
}

fs::path FiguresFolder(const Program& program, const std::string& id) {
  return ReportFile(program, id).replace_filename("figures");
}

void DrawExperiment(Program& program, const std::string& verb, const LoadedExperiment& loaded,
                    const fs::path& out, const std::vector<std::string>& more) {
  const std::string& id = loaded.experiment.id;
  std::vector<std::string> arguments = {
      verb,        "--results", program.store().results().string(),  "--experiment",
      id,          "--spec",    WriteSpec(program, loaded).string(), "--out",
      out.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Draw(program, arguments, id);
}

void DrawPaper(Program& program, const std::string& paper,
               const std::vector<std::unique_ptr<LoadedExperiment>>& loaded, const fs::path& out) {
  json index = {{"id", paper}, {"experiments", json::array()}, {"not_run", json::array()}};
  std::vector<ClaimingExperiment> claiming;
  for (const auto& each : loaded) {
    const std::string& id = each->experiment.id;
    index["experiments"].push_back({{"id", id},
                                    {"spec", WriteSpec(program, *each).string()},
                                    {"report", ReportFile(program, id).string()}});
    for (const auto& [what, reason] : NotRunOf(each->experiment, each->results)) {
      index["not_run"].push_back({{"experiment", id}, {"what", what}, {"reason", reason}});
    }
    claiming.push_back({id, each->experiment.title, each->results});
  }
  index["judged"] = ToJson(JudgedByExperiment(claiming));
  const fs::path file = ReportFile(program, paper).replace_filename("index.json");
  WriteFileDurably(file, index.dump(1) + "\n");
  Draw(program,
       {"paper", "--results", program.store().results().string(), "--index", file.string(), "--out",
        out.string()},
       paper);
}

namespace {

bool IsModelled(const Cell& cell) { return cell.config.modelled(); }

}  // namespace

std::vector<NotRun> NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results) {
  std::vector<NotRun> list = experiment.not_run;
  for (const auto& result : results) {
    std::map<std::string, std::size_t> absent;  // by mode
    for (const auto& cell : result.cells) {
      if (cell.failure == "not run") ++absent[NameOf(cell.cell->config.mode)];
    }
    for (const auto& [mode, count] : absent) {
      list.push_back({fmt::format("{} of {} cells of part \"{}\", {}", count, result.cells.size(),
                                  result.part->title, mode),
                      fmt::format("no trial in the store yet; `sparfuse reproduce {}` runs them",
                                  experiment.id)});
    }
  }
  return list;
}

bool AnyClaimFails(const std::vector<PartResult>& results, bool modelled_only) {
  for (const auto& result : results) {
    for (const auto& judged : JudgeClaims(result)) {
      const auto& cells = result.part->cells;
      const bool counts = !modelled_only || (IsModelled(cells[judged.claim->of_cell]) &&
                                             IsModelled(cells[judged.claim->over_cell]));
      if (counts && judged.fails_strict()) return true;
    }
  }
  return false;
}

std::string VerdictCounts(const std::vector<PartResult>& results) {
  const JudgedClaims judged = JudgedByPart(results);
  return fmt::format("{} claims{}{}", judged.claims, judged.claims > 0 ? ": " : "", judged.summary);
}

int FigureVerb(Program& program, const DrawRequest& request) {
  program.ShowOthers();
  const auto loaded = program.LoadWithResults(request.name);
  if (std::ranges::all_of(loaded->experiment.parts,
                          [](const Part& part) { return part.figures.empty(); })) {
    fmt::print(
        stderr,
        "note: {} has no [[figure]], so nothing is drawn; `sparfuse list figures` prints the "
        "kinds of figures\n",
        request.name);
  }
  DrawExperiment(program, "figure", *loaded,
                 request.out.empty() ? FiguresFolder(program, loaded->experiment.id) : request.out);
  return kDone;
}

int SkillVerb(Program& program, const SkillVerbRequest& request) {
  const auto& [names, without, by] = request;
  SkillRequest asked{by, {}};
  const auto is_key = [](const std::string& key) {
    return std::ranges::find(SkillStrata(), key) != SkillStrata().end();
  };
  for (const std::string& each : without) {
    const std::size_t at = each.find('=');
    if (at == std::string::npos || !is_key(each.substr(0, at))) {
      SPARFUSE_THROW(kConfig, fmt::format("--without {}: expected KEY=VALUE with a key of {}", each,
                                          fmt::join(SkillStrata(), ", ")));
    }
    asked.without.emplace_back(each.substr(0, at), each.substr(at + 1));
  }
  if (!by.empty() && !is_key(by)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("--by {}: expected one of {}", by, fmt::join(SkillStrata(), ", ")));
  }
  NeedTrials(program, names.front());
  std::vector<TestbedPredictions> found;
  for (const std::string& name : names) {
    for (const auto& each : program.WithResults(program.LoadAll(name))) {
      const bool ran = std::ranges::any_of(each->results, [](const PartResult& result) {
        return std::ranges::any_of(result.cells,
                                   [](const CellResult& cell) { return !cell.trials.empty(); });
      });
      if (!ran) {
        fmt::print(stderr, "{0}: no trials; `sparfuse run {0}` comes first\n", each->experiment.id);
        continue;
      }
      auto predictions = PredictionsIn(each->experiment, each->results, program.catalog());
      std::ranges::move(predictions, std::back_inserter(found));
    }
  }
  if (found.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("skill {}: expected experiments with trials and a figure of "
                               "kind \"agreement\" or \"grouped_bars\" that predicts "
                               "published numbers",
                               fmt::join(names, " ")));
  }
  const GroupedTable table = TestbedTable(std::move(found), asked);
  if (table.groups.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("--without {}: expected some numbers to be left",
                                        fmt::join(without, " ")));
  }
  fmt::print("{}", Render(table));
  return kDone;
}

int ReportVerb(Program& program, const DrawRequest& request) {
  const auto& [name, out] = request;
  const bool paper = program.IsPaper(name);
  program.ShowOthers();
  const auto all = program.WithResults(program.LoadAll(name));
  const std::string& id = paper ? name : all.front()->experiment.id;
  const std::filesystem::path file = out.empty() ? ReportFile(program, id) : out;
  if (paper) {
    DrawPaper(program, name, all, file);
  } else {
    DrawExperiment(program, "report", *all.front(), file);
  }
  return kDone;
}

int ReproduceVerb(Program& program, const ReproduceRequest& request) {
  RunOptions options = program.OptionsOfRuns(request.launch);
  auto experiments = program.LoadJoined({request.name}, request.with_methods, options);
  options.fresh = request.fresh;
  options.retry_disturbed = request.retry_disturbed;
  options.modelled_only = request.modelled;
  const RunSummary ran = RunAndCount(program, experiments, options);
  if (ran.interrupted) {
    fmt::print(
        "interrupted; finished trials are kept, and `sparfuse reproduce {}` goes on from "
        "here\n",
        request.name);
    return kInterrupted;
  }
  program.ShowOthers();
  const auto all = program.WithResults(std::move(experiments));
  const bool any_fails = std::ranges::any_of(
      all, [&](const auto& each) { return AnyClaimFails(each->results, request.modelled); });
  fs::path report;
  if (program.IsPaper(request.name)) {
    report = ReportFile(program, request.name);
    DrawPaper(program, request.name, all, report);
    fmt::print("\n");
    std::vector<const std::vector<PartResult>*> results;
    for (const auto& each : all) results.push_back(&each->results);
    if (const std::string warning = DisturbedWarning(results); !warning.empty())
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
