#include "harness/cli/drawing.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/cli/verdicts.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/spec.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Writes what sparfuse_report is told of an experiment.
fs::path WriteSpec(const Program& program, const LoadedExperiment& loaded) {
  const fs::path spec = ReportFile(program, loaded.experiment.id).replace_filename("spec.json");
  WriteFileDurably(spec, ExperimentSpec(loaded.experiment, loaded.parts, loaded.results,
                                        program.store().results())
                                 .dump(1) +
                             "\n");
  return spec;
}

// Runs sparfuse_report on the store; `name` is what `sparfuse run` would be given.
void Draw(const Program& program, const std::vector<std::string>& arguments,
          const std::string& name) {
  if (!Index::IsThere(program.store().index_path())) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: nothing has run yet; `sparfuse run {}` comes first",
                                        program.store().results().string(), name));
  }
  RenderFile(program, arguments, false);
}

}  // namespace

void RenderFile(const Program& program, const std::vector<std::string>& arguments, bool quiet) {
  const fs::path folder = program.root() / "harness" / "figures";
  const fs::path package = folder / "sparfuse_report";
  if (!fs::exists(package))
    SPARFUSE_THROW(kConfig, "no " + package.string() + ": expected the project's root with --root");
  std::string path = "PYTHONPATH=" + folder.string();
  if (const char* more = std::getenv("PYTHONPATH")) path += std::string(":") + more;
  std::vector<std::string> command = {"env", path, program.Python().string(), "-m",
                                      package.filename().string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (quiet) command.emplace_back("--quiet");
  if (const int status = RunCommand(command); status != 0) {
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

void DrawExperiment(const Program& program, const std::string& verb, const LoadedExperiment& loaded,
                    const fs::path& out, const std::vector<std::string>& more) {
  const std::string& id = loaded.experiment.id;
  std::vector<std::string> arguments = {
      verb,        "--results", program.store().results().string(),  "--experiment",
      id,          "--spec",    WriteSpec(program, loaded).string(), "--out",
      out.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Draw(program, arguments, id);
}

void DrawPaper(const Program& program, const std::string& paper,
               const std::vector<std::unique_ptr<LoadedExperiment>>& loaded, const fs::path& out) {
  json index = {{"id", paper}, {"experiments", json::array()}, {"not_run", json::array()}};
  for (const auto& each : loaded) {
    const std::string& id = each->experiment.id;
    index["experiments"].push_back({{"id", id},
                                    {"spec", WriteSpec(program, *each).string()},
                                    {"report", ReportFile(program, id).string()}});
    for (auto& entry : NotRunOf(each->experiment, each->results)) {
      index["not_run"].push_back(std::move(entry));
    }
  }
  const fs::path file = ReportFile(program, paper).replace_filename("index.json");
  WriteFileDurably(file, index.dump(1) + "\n");
  Draw(program,
       {"paper", "--results", program.store().results().string(), "--index", file.string(), "--out",
        out.string()},
       paper);
}

}  // namespace sparfuse::harness
