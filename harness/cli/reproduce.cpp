#include "harness/cli/reproduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/cli/commands.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/spec.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool IsModelled(const Cell& cell) { return cell.json["mode"] == "modelled"; }

// "64 claims: 4 consistent with the paper, 48 holds"
std::string VerdictCounts(const std::vector<PartResult>& results) {
  std::map<std::string_view, std::size_t> counts;
  std::size_t claims = 0;
  for (const auto& result : results) {
    for (const auto& judged : JudgeClaims(result)) {
      ++counts[VerdictName(judged.verdict)];
      ++claims;
    }
  }
  std::string text = fmt::format("{} claims", claims);
  const char* separator = ": ";
  for (const auto& [verdict, count] : counts) {
    text += fmt::format("{}{} {}", separator, count, verdict);
    separator = ", ";
  }
  return text;
}

}  // namespace

json NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results) {
  json list = json::array();
  for (const auto& [what, reason] : experiment.not_run) {
    list.push_back({{"experiment", experiment.id}, {"what", what}, {"reason", reason}});
  }
  for (const auto& result : results) {
    std::map<std::string, std::size_t> absent;  // by mode
    for (const auto& cell : result.cells) {
      if (cell.failure == "not run") ++absent[cell.cell->json["mode"]];
    }
    for (const auto& [mode, count] : absent) {
      list.push_back({{"experiment", experiment.id},
                      {"what", fmt::format("{} of {} cells of part \"{}\", {}", count,
                                           result.cells.size(), result.part->title, mode)},
                      {"reason", fmt::format("no trial in the store yet; `sparfuse reproduce {}` "
                                             "runs them",
                                             experiment.id)}});
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

void Commands::RenderPaper(const std::string& paper,
                           const std::vector<std::unique_ptr<Loaded>>& loaded,
                           const fs::path& out) {
  json index = {{"id", paper}, {"experiments", json::array()}, {"not_run", json::array()}};
  for (const auto& each : loaded) {
    index["experiments"].push_back({{"id", each->experiment.id},
                                    {"spec", WriteSpec(*each).string()},
                                    {"report", ReportFile(each->experiment.id).string()}});
    for (auto& entry : NotRunOf(each->experiment, each->results)) {
      index["not_run"].push_back(std::move(entry));
    }
  }
  const fs::path file = ReportFile(paper).replace_filename("index.json");
  WriteFileDurably(file, index.dump(1) + "\n");
  Draw({"paper", "--results", store_.results().string(), "--index", file.string(), "--out",
        out.string()},
       paper);
}

int Commands::Reproduce(const std::string& name, const ReproduceOptions& options) {
  auto experiments = LoadAll(name);
  const RunSummary ran = RunAll(experiments, options.fresh, options.modelled);
  if (ran.interrupted) {
    fmt::print("interrupted; what is finished is kept, `sparfuse reproduce {}` goes on from here\n",
               name);
    return kInterrupted;
  }
  const auto all = WithResults(std::move(experiments));
  const bool paper = IsPaper(name);
  bool any_fails = false;
  for (const auto& each : all) {
    any_fails = any_fails || AnyClaimFails(each->results, options.modelled);
  }
  fs::path report;
  if (paper) {
    report = ReportFile(name);
    RenderPaper(name, all, report);
    fmt::print("\n");
    for (const auto& each : all) {
      fmt::print("{:28} {}\n", each->experiment.id, VerdictCounts(each->results));
    }
  } else {
    const auto& one = *all.front();
    report = ReportFile(one.experiment.id);
    Render("figure", one, report.parent_path() / "figures");
    Render("report", one, report);
    fmt::print("\n");
    for (const auto& table : TablesOf(one.parts, one.results, catalog())) {
      fmt::print("{}\n", harness::Render(table, TableFormat::kMarkdown));
    }
    fmt::print("figures: {}\n", (report.parent_path() / "figures").string());
  }
  fmt::print("report:  {}\n", report.string());
  if (ran.failed > 0) return kTrialFailed;
  return options.strict && any_fails ? kClaimNotReproduced : kDone;
}

}  // namespace sparfuse::harness
