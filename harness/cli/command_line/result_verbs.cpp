// Adds the verbs that show what trials tell: tables, figures, reports, and advice by a model.
#include <memory>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// What is drawn, and where to.
struct DrawRequest {
  std::string name;
  fs::path out;
};

}  // namespace

void AddStatus(CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  auto* verb = AddVerb(line, "status", "what is there and what failed", Speaks::kTextOrJson,
                       [=](Program& program) { return StatusVerb(program, *name); });
  verb->add_option("experiment", *name)->required();
  AddSystemOption(verb, line);
}

void AddTable(CommandLine& line) {
  struct Request {
    std::string name, format = "md";
  };
  const auto request = std::make_shared<Request>();
  auto* verb =
      AddVerb(line, "table", "results as text or numbers", Speaks::kTextOrJson,
              [=](Program& program) { return TableVerb(program, request->name, request->format); });
  verb->add_option("experiment", request->name)->required();
  verb->add_option("--format", request->format, "md, latex or, numbers in base units, csv")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  AddKeepDisturbed(verb, line, kKeepInResults);
  AddSystemOption(verb, line);
}

void AddFigure(CommandLine& line) {
  const auto request = std::make_shared<DrawRequest>();
  auto* verb =
      AddVerb(line, "figure", "figures as PNG, PDF and SVG", Speaks::kText,
              [=](Program& program) { return FigureVerb(program, request->name, request->out); });
  verb->add_option("experiment", request->name)->required();
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddReport(CommandLine& line) {
  const auto request = std::make_shared<DrawRequest>();
  auto* verb =
      AddVerb(line, "report", "one self-contained HTML file", Speaks::kText,
              [=](Program& program) { return ReportVerb(program, request->name, request->out); });
  verb->add_option("experiment", request->name, kNames)->required();
  verb->add_option("--out", request->out, "file (default: reports/ID/report.html in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddExplain(CommandLine& line) {
  struct Request {
    ExplainRequest cells;
    fs::path out;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(line, "explain", "where the difference in step time of two cells comes from",
                       Speaks::kTextOrJson, [=](Program& program) {
                         return ExplainVerb(program, request->cells, request->out);
                       });
  verb->add_option("experiment", request->cells.experiment)->required();
  verb->add_option("--of", request->cells.of, "the cell: key=value,... (link.gbps=1 into a table)");
  verb->add_option("--over", request->cells.over, "the cell that it is compared with, likewise");
  verb->add_option("--part", request->cells.part, "the part of both (default: any)");
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddAdvise(CommandLine& line) {
  const auto asked = std::make_shared<AdviseOptions>();
  auto* verb =
      AddVerb(line, "advise", "which method trains faster on a cluster, and what decides",
              Speaks::kTextOrJson, [=](Program& program) { return AdviseVerb(program, *asked); });
  verb->add_option("--workload", asked->workload,
                   "of `sparfuse list workloads`, or table:FILE.json")
      ->required();
  verb->add_option("--cluster", asked->cluster, "of `sparfuse list clusters`")->required();
  verb->add_option("--workers", asked->workers,
                   "8,16,64 (default: a quarter, half and all of the cluster's devices)");
  verb->add_option("--density", asked->densities, "0.01,0.001 (default: 0.01)");
  verb->add_option("--methods", asked->methods, "a,b,... (default: all)")->delimiter(',');
  verb->add_option("--sparsifier", asked->sparsifier,
                   "in the place of the methods' own, where these may have another");
  verb->add_option("--batch", asked->batch, "samples of a worker's step (default: the workload's)");
  verb->add_option("--link", asked->link,
                   "GBPS:ALPHA_US, in the place of the cluster's between nodes");
  auto* toml =
      verb->add_flag("--toml", asked->toml, "print the experiment file that would keep it");
  toml->excludes(verb->get_option("--json"));
  verb->add_flag("--phase", asked->phase,
                 "also draw who wins over bandwidth and workers: PNG, PDF and SVG");
  verb->add_option("--out", asked->out, "folder of the drawing (default: the working directory)");
}

}  // namespace sparfuse::harness
