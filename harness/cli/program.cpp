#include "harness/cli/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "harness/clusters/profile_folders.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/node.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/stored_experiment.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/store/origin.hpp"
#include "harness/store/scrubber.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

// "" would mean the folder of all experiments.
void NeedName(const std::string& name) {
  if (name.empty()) {
    SPARFUSE_THROW(kConfig,
                   "experiment \"\": expected a name beneath experiments/, a folder there, or a "
                   "path that ends in .toml");
  }
}

// Whether a cell runs on hardware, or needs a profile that is measured there.
bool NeedsLaunches(const Experiment& experiment) {
  return std::ranges::any_of(experiment.parts, [](const Part& part) {
    return std::ranges::any_of(part.cells, [](const Cell& cell) {
      const CellConfig& config = cell.config;
      return config.modelled() ? IsOwnCluster(config.cluster)
                               : config.transport != Transport::kThreads;
    });
  });
}

// A joined method must have cells in some part. Otherwise the reason for its exclusion ends the
// verb.
void RequireACellOf(const std::string& method, const std::vector<Experiment>& experiments) {
  const std::string name = MethodNameOf(method);
  std::size_t excluded = 0;
  std::string reason;
  for (const Experiment& experiment : experiments) {
    for (const Part& part : experiment.parts) {
      if (std::ranges::any_of(part.cells,
                              [&](const Cell& cell) { return cell.config.method == name; }))
        return;
      for (const ExcludedCell& out : part.excluded) {
        if (out.cell.value("method", "") != method) continue;
        ++excluded;
        reason = out.reason;
      }
    }
  }
  SPARFUSE_THROW(kConfig, fmt::format("--with-method {}: no cell is left, {} excluded: {}", method,
                                      excluded, reason));
}

// Keeps the rows of the machine, and rows without any machine.
void KeepSystem(std::vector<TrialRow>& rows, const std::string& machine) {
  std::erase_if(rows, [&](const TrialRow& row) {
    const std::string other = MachineOf(row);
    return !other.empty() && other != machine;
  });
}

}  // namespace

Program::Program(Settings settings)
    : settings_(std::move(settings)),
      store_(settings_.results,
             {settings_.own.empty() ? fs::path() : settings_.own / "profiles",
              settings_.results / "profiles", settings_.root / "results" / "profiles"}) {}

std::vector<fs::path> Program::experiments() const {
  std::vector<fs::path> folders = {settings_.root / "experiments"};
  if (!settings_.own.empty()) folders.insert(folders.begin(), settings_.own / "experiments");
  return folders;
}

fs::path Program::systems() const {
  return (settings_.own.empty() ? settings_.results : settings_.own) / "systems";
}

const Catalog& Program::catalog() {
  if (!catalog_) {
    catalog_ = BuiltInCatalog();
    if (!settings_.own.empty()) catalog_->own_methods = fs::absolute(settings_.own) / "methods";
    for (const fs::path& folder : settings_.plugins)
      catalog_->plugins.push_back(fs::absolute(folder));
    catalog_->python = Python();
    AddPluginsOfEnvironment(*catalog_);
  }
  return *catalog_;
}

fs::path Program::Python() const {
  const fs::path own = settings_.root / ".venv" / "bin" / "python";
  return fs::exists(own) ? own : fs::path("python3");
}

namespace {

[[noreturn]] void FailUnknown(const std::string& name, std::span<const std::string> known) {
  SPARFUSE_THROW(kConfig,
                 fmt::format("unknown experiment \"{}\"{} (sparfuse list experiments, or a path "
                             "that ends in .toml)",
                             name, Suggestion(name, known)));
}

}  // namespace

bool Program::IsPaper(const std::string& name) const {
  NeedName(name);
  return FindExperiment(name).empty() && !FindPaper(name).empty();
}

fs::path Program::FindExperiment(const std::string& name) const {
  for (const fs::path& folder : experiments()) {
    if (const fs::path file = folder / (name + ".toml"); SomethingIsAt(file)) return file;
  }
  return {};
}

fs::path Program::FindPaper(const std::string& name) const {
  for (const fs::path& folder : experiments()) {
    if (!ExperimentFiles(folder / name).empty()) return folder / name;
  }
  return {};
}

std::vector<std::string> Program::NamesOfFiles() const {
  std::vector<std::string> names;
  for (const fs::path& folder : experiments()) {
    for (const auto& path : ExperimentFiles(folder))
      names.push_back(fs::relative(path, folder).replace_extension("").string());
  }
  return names;
}

fs::path Program::FileOf(const std::string& name) const {
  NeedName(name);
  if (fs::path(name).extension() == ".toml") return name;
  if (const fs::path file = FindExperiment(name); !file.empty()) return file;
  std::vector<std::string> known = NamesOfFiles();
  if (IsPaper(name)) {
    std::erase_if(known, [&](const std::string& each) { return !each.starts_with(name + "/"); });
    SPARFUSE_THROW(kConfig, fmt::format("{} is a folder of experiments: expected one of {}", name,
                                        fmt::join(known, ", ")));
  }
  if (name == kImported) {
    SPARFUSE_THROW(kConfig,
                   "imported is not an experiment: `sparfuse import list` prints imported results, "
                   "and tables of experiments list the results that fit them");
  }
  FailUnknown(name, known);
}

Experiment Program::Load(const std::string& name) {
  return ParseExperiment(TomlFile::Read(FileOf(name)), catalog(), store_.profiles(),
                         settings_.root / "results" / "published");
}

Experiment Program::LoadOrStored(const std::string& name) {
  NeedName(name);
  if (fs::path(name).extension() == ".toml" || name == kImported || IsPaper(name) ||
      !FindExperiment(name).empty())
    return Load(name);
  std::vector<std::string> problems;  // of the store; the reader of the rows prints them
  const std::vector<TrialRow> rows = store_.Rows(problems);
  problems.clear();
  Experiment stored = StoredExperiment(name, rows, catalog(), problems);
  for (const std::string& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  if (stored.parts.empty()) {
    // Those of the store come first, so that a long list of files does not hide them.
    std::vector<std::string> known;
    for (const TrialRow& row : rows) {
      if (!row.imported() && std::ranges::find(known, row.experiment) == known.end())
        known.push_back(row.experiment);
    }
    for (std::string& file : NamesOfFiles()) {
      if (std::ranges::find(known, file) == known.end()) known.push_back(std::move(file));
    }
    FailUnknown(name, known);
  }
  fmt::print(stderr,
             "note: no file of experiment {} in {}: these are the cells of its trials in the "
             "store, without claims and figures\n",
             name, experiments().front().string());
  return stored;
}

std::vector<Experiment> Program::LoadAll(const std::string& name) { return LoadAll(name, {}); }

std::vector<Experiment> Program::LoadAll(const std::string& name,
                                         std::span<const std::string> joined) {
  std::vector<fs::path> files;
  if (IsPaper(name)) {
    files = ExperimentFiles(FindPaper(name));
  } else {
    files.push_back(FileOf(name));
  }
  std::vector<Experiment> loaded;
  for (const fs::path& file : files) {
    loaded.push_back(ParseExperiment(TomlFile::Read(file), catalog(), store_.profiles(),
                                     settings_.root / "results" / "published", joined));
  }
  return loaded;
}

std::vector<Experiment> Program::LoadJoined(const std::vector<std::string>& names,
                                            std::vector<std::string> methods,
                                            RunOptions& launches) {
  for (std::string& method : methods) {
    const fs::path file = OutsideMethodFile(catalog(), method, fs::current_path());
    if (file.empty()) {
      NeedEntry(catalog().methods, "method", method);
    } else {
      method = file.lexically_normal();
      ReadOutsideMethod(catalog(), method);  // an error in it ends the verb and excludes no cell
    }
  }
  std::vector<Experiment> loaded;
  for (const std::string& name : names) {
    for (Experiment& experiment : LoadAll(name, methods)) loaded.push_back(std::move(experiment));
  }
  if (methods.empty()) return loaded;
  const auto has_axis = [](const Part& part) {
    return std::any_of(part.axes.begin(), part.axes.end(),
                       [](const nlohmann::json& axis) { return axis.contains("method"); });
  };
  if (std::none_of(loaded.begin(), loaded.end(), [&](const Experiment& experiment) {
        return std::any_of(experiment.parts.begin(), experiment.parts.end(), has_axis);
      })) {
    SPARFUSE_THROW(kConfig, fmt::format("--with-method {}: no part of {} lists methods on an "
                                        "[[axis]]",
                                        fmt::join(methods, " "), fmt::join(names, ", ")));
  }
  for (const std::string& method : methods) RequireACellOf(method, loaded);
  LearnNodes(launches);
  OpenBlocks(Context(launches), Rows(), loaded);
  return loaded;
}

std::vector<TrialRow> Program::Rows() const {
  std::vector<std::string> problems;
  auto rows = store_.Rows(problems);
  for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", Visible(problem));
  TellStoresApart(rows, store_.results());
  return rows;
}

std::vector<std::unique_ptr<LoadedExperiment>> Program::WithResults(
    std::vector<Experiment> experiments) {
  std::vector<TrialRow> found = Rows();
  std::string machine = HashOf(DescribeSystem());
  if (!system_.empty()) {
    machine = NeedMachine(MachinesOf(found), system_, store_.results().string());
    KeepSystem(found, machine);
  }
  if (for_others_) MakeShareable(found, store_.results());
  const auto rows = std::make_shared<const std::vector<TrialRow>>(std::move(found));
  std::vector<std::unique_ptr<LoadedExperiment>> all;
  for (auto& experiment : experiments) {
    auto loaded = std::make_unique<LoadedExperiment>();
    loaded->experiment = std::move(experiment);
    FindStoredCells(loaded->experiment, *rows);
    loaded->parts = PartsWithTwins(loaded->experiment);
    loaded->rows = rows;
    loaded->results = ResultsOf(loaded->parts, catalog(), *rows, machine, settings_.disturbed);
    all.push_back(std::move(loaded));
  }
  return all;
}

std::unique_ptr<LoadedExperiment> Program::LoadWithResults(const std::string& name) {
  std::vector<Experiment> one;
  one.push_back(LoadOrStored(name));
  return std::move(WithResults(std::move(one)).front());
}

RunOptions Program::OptionsOfRuns(const LaunchOptions& launch) const {
  RunOptions options;
  options.root = settings_.root;
  options.launch = ReadLaunchMethod(launch);
  if (options.launch.kind == LaunchMethod::Kind::kMpirun && !options.launch.hostfile.empty()) {
    options.launch.mpirun_hostfile =
        FileForMpirun(options.launch.hostfile, fs::absolute(store_.results()) / "hostfiles");
  }
  options.ship = launch.ship;
  options.data = workloads::ResolveDataDirectory({});
  options.worker =
      options.launch.across_hosts() ? fs::absolute(settings_.worker) : settings_.worker;
  options.keep_disturbed = settings_.disturbed == DisturbedTrials::kCount;
  return options;
}

void Program::RememberNodes(RunOptions& options) const {
  std::vector<std::string> problems;  // the reader of the rows prints them
  if (options.launch.across_hosts() && !options.nodes)
    options.nodes = StoredNodes(store_.Rows(problems));
}

void Program::LearnNodes(RunOptions& options) const {
  if (!options.launch.across_hosts() || options.nodes) return;
  const Interruption interruption;
  AskedNodes asked = AskNodes(options, store_.results(), Interruption::flag());
  for (const std::string& problem : asked.problems)
    fmt::print(options.progress, "warning: hosts: {}\n", problem);
  if (asked.nodes.empty()) return RememberNodes(options);
  options.nodes = std::move(asked.nodes);
  fmt::print(options.progress, "{} host(s): {}\n", options.nodes->size(),
             HardwareLine(ToJson(SystemOfNodes(*options.nodes))));
}

PlanContext Program::Context(const RunOptions& options) {
  return {catalog(),
          store_,
          DescribeSystem(),
          options.fresh,
          options.retry_disturbed,
          {},
          {options.launch.across_hosts(), options.nodes.value_or(std::vector<Node>())}};
}

RunSummary Program::Run(const std::vector<Experiment>& experiments, RunOptions options) {
  const Interruption interruption;
  if (std::ranges::any_of(experiments, NeedsLaunches)) LearnNodes(options);
  return RunExperiments(catalog(), store_, experiments, options, Interruption::flag());
}

int RunCommand(const std::vector<std::string>& command) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) SPARFUSE_THROW(kInternal, "cannot fork");
  if (child == 0) {
    std::vector<char*> argv;
    for (const auto& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int RunPackage(const Program& program, const fs::path& package,
               const std::vector<std::string>& arguments) {
  std::string path = "PYTHONPATH=" + package.parent_path().string();
  if (const char* more = std::getenv("PYTHONPATH")) path += std::string(":") + more;
  std::vector<std::string> command = {"env", path, program.Python().string(), "-m",
                                      package.filename().string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunCommand(command);
}

void PrintJson(const nlohmann::json& value) {
  const std::string text = value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  fmt::print("{}\n", Visible(text));
}

}  // namespace sparfuse::harness
