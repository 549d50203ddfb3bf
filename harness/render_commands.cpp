// The verbs that draw: they write the experiment as JSON and call harness/figures/render.py.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/commands.hpp"
#include "harness/durable_file.hpp"
#include "harness/spec.hpp"

namespace sparfuse {
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

fs::path Commands::ReportFolder(const Experiment& experiment) const {
  return store_.results() / "reports" / experiment.id;
}

int Commands::Render(const std::string& verb, const Loaded& loaded, const fs::path& out) {
  const fs::path script = settings_.root / "harness" / "figures" / "render.py";
  if (!fs::exists(script))
    SPARFUSE_THROW(kConfig, "no " + script.string() + ": expected the project's root with --root");
  if (!fs::exists(store_.index_path())) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: nothing has run yet; `sparfuse run {}` comes first",
                                        store_.results().string(), loaded.experiment.id));
  }
  const fs::path folder = ReportFolder(loaded.experiment);
  MakeDirectories(folder);
  const fs::path spec = folder / "spec.json";
  WriteFileDurably(spec,
                   ExperimentSpec(loaded.experiment, loaded.parts, loaded.results).dump(1) + "\n");
  const int status = RunProgram({Python().string(), script.string(), verb, "--results",
                                 store_.results().string(), "--experiment", loaded.experiment.id,
                                 "--spec", spec.string(), "--out", out.string()});
  if (status != 0) {
    SPARFUSE_THROW(kInternal,
                   fmt::format("{} {} ended with status {}", script.string(), verb, status));
  }
  return kDone;
}

int Commands::Figure(const std::string& name, const fs::path& out) {
  const auto loaded = LoadWithResults(name);
  return Render("figure", *loaded,
                out.empty() ? ReportFolder(loaded->experiment) / "figures" : out);
}

int Commands::Report(const std::string& name, const fs::path& out) {
  const auto loaded = LoadWithResults(name);
  return Render("report", *loaded,
                out.empty() ? ReportFolder(loaded->experiment) / "report.html" : out);
}

int Commands::Reproduce(const std::string& name, bool fresh, bool strict) {
  const int ran = Run({name}, fresh);
  if (ran == kInterrupted) return ran;
  const auto loaded = LoadWithResults(name);
  const fs::path folder = ReportFolder(loaded->experiment);
  Render("figure", *loaded, folder / "figures");
  Render("report", *loaded, folder / "report.html");
  bool any_fails = false;
  fmt::print("\n");
  for (const auto& table : TablesOf(loaded->parts, loaded->results, catalog())) {
    fmt::print("{}\n", sparfuse::Render(table, TableFormat::kMarkdown));
  }
  for (const auto& result : loaded->results) {
    for (const auto& claim : JudgeClaims(result)) {
      any_fails = any_fails || claim.fails_strict();
    }
  }
  fmt::print("figures: {}\nreport:  {}\n", (folder / "figures").string(),
             (folder / "report.html").string());
  if (ran != kDone) return ran;
  return strict && any_fails ? kClaimNotReproduced : kDone;
}

}  // namespace sparfuse
