// Runs the verbs that draw: writes the experiment as JSON and calls harness/figures/render.py.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/cli/commands.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/spec.hpp"
#include "harness/report/step_differences.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// Runs a command on this program's terminal and returns its exit status.
int RunProgram(const std::vector<std::string>& command) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) SPARFUSE_THROW(kInternal, "cannot fork");
  if (child == 0) {
    std::vector<char*> argv;
    for (const auto& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

fs::path Commands::Python() const {
  const fs::path own = settings_.root / ".venv" / "bin" / "python";
  return fs::exists(own) ? own : fs::path("python3");
}

fs::path Commands::ReportFile(const std::string& id) const {
  const fs::path folder = store_.results() / "reports" / id;
  MakeDirectories(folder);
  return folder / "report.html";
}

fs::path Commands::WriteSpec(const Loaded& loaded) {
  const fs::path spec = ReportFile(loaded.experiment.id).replace_filename("spec.json");
  WriteFileDurably(
      spec,
      ExperimentSpec(loaded.experiment, loaded.parts, loaded.results, store_.results()).dump(1) +
          "\n");
  return spec;
}

void Commands::Draw(const std::vector<std::string>& arguments, const std::string& name) {
  const fs::path script = settings_.root / "harness" / "figures" / "render.py";
  if (!fs::exists(script))
    SPARFUSE_THROW(kConfig, "no " + script.string() + ": expected the project's root with --root");
  if (!fs::exists(store_.index_path())) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: nothing has run yet; `sparfuse run {}` comes first",
                                        store_.results().string(), name));
  }
  std::vector<std::string> command = {Python().string(), script.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (const int status = RunProgram(command); status != 0) {
    SPARFUSE_THROW(kInternal, fmt::format("{} {} ended with status {}", script.string(),
                                          arguments.front(), status));
  }
}

int Commands::Render(const std::string& verb, const Loaded& loaded, const fs::path& out,
                     const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {verb,
                                        "--results",
                                        store_.results().string(),
                                        "--experiment",
                                        loaded.experiment.id,
                                        "--spec",
                                        WriteSpec(loaded).string(),
                                        "--out",
                                        out.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Draw(arguments, loaded.experiment.id);
  return kDone;
}

int Commands::Figure(const std::string& name, const fs::path& out) {
  const auto loaded = LoadWithResults(name);
  return Render("figure", *loaded,
                out.empty() ? ReportFile(loaded->experiment.id).replace_filename("figures") : out);
}

int Commands::Report(const std::string& name, const fs::path& out) {
  const auto all = WithResults(LoadAll(name));
  const std::string& id = IsPaper(name) ? name : all.front()->experiment.id;
  const fs::path file = out.empty() ? ReportFile(id) : out;
  if (!IsPaper(name)) return Render("report", *all.front(), file);
  RenderPaper(name, all, file);
  return kDone;
}

int Commands::Explain(const ExplainRequest& request, const fs::path& out) {
  const auto loaded = LoadWithResults(request.experiment);
  const ExplainedCells cells =
      ChooseExplained(loaded->parts, loaded->results, *loaded->rows, request);
  std::vector<std::string> more;
  for (const auto& [option, cell] :
       {std::pair("--of", cells.of), std::pair("--over", cells.over)}) {
    more.push_back(option);
    more.push_back(cell->cell->config_hash);
  }
  const fs::path folder = ReportFile(loaded->experiment.id).parent_path();
  const fs::path parts = folder / "explained-parts.json";
  const fs::path differences = folder / "explained-differences.json";
  Render("parts", *loaded, parts, more);
  const nlohmann::json found = ReadJsonFile(parts);
  const bool same_mode = cells.of->cell->config["mode"] == cells.over->cell->config["mode"];
  WriteFileDurably(differences,
                   StepDifferences(found["of"], found["over"], same_mode).dump(1) + "\n");
  more.insert(more.end(), {"--differences", differences.string()});
  if (settings_.json) more.push_back("--json");
  return Render("explain", *loaded, out.empty() ? folder / "figures" : out, more);
}

}  // namespace sparfuse::harness
