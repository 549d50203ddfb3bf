// Holds the data of every verb of the program: the project's folder, its store and the catalog.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"
#include "harness/run/runner.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// The exit status of each verb; one that ends early throws an Error.
enum ExitCode {
  kDone = 0,
  kTrialFailed = 1,
  kUsage = 2,
  kClaimNotReproduced = 3,
  kInterrupted = 130
};

// An experiment with the trials that the store has of it.
struct LoadedExperiment {
  Experiment experiment;
  std::vector<Part> parts;                            // twins included
  std::shared_ptr<const std::vector<TrialRow>> rows;  // of all that were loaded together
  std::vector<PartResult> results;                    // point into parts and rows
};

class Program {
 public:
  struct Settings {
    std::filesystem::path root, results, worker;
    // A folder of the user's with experiments/, methods/, profiles/, published/ and systems/, or
    // "".
    std::filesystem::path own;
    std::vector<std::filesystem::path> plugins;  // folders with methods and parts of others
    bool json = false;                           // print JSON
    // kCount: --keep-disturbed. Of runs: no trial runs again because it was disturbed.
    DisturbedTrials disturbed = DisturbedTrials::kApart;
  };
  explicit Program(Settings settings);

  const std::filesystem::path& root() const noexcept { return settings_.root; }
  const std::filesystem::path& worker() const noexcept { return settings_.worker; }
  bool json() const noexcept { return settings_.json; }
  DisturbedTrials disturbed() const noexcept { return settings_.disturbed; }
  const Store& store() const noexcept { return store_; }
  const Catalog& catalog();  // joined by the first call
  // The folders that are searched for experiments, in this order.
  std::vector<std::filesystem::path> experiments() const;
  std::filesystem::path systems() const;  // with descriptions of systems
  std::filesystem::path Python() const;   // of the project's environment, or the system's

  // Whether `name` is a folder beneath experiments/: all of its experiments are meant.
  bool IsPaper(const std::string& name) const;
  // The experiment named, a .toml file or a name beneath experiments/. Throws Error{kConfig}.
  Experiment Load(const std::string& name);
  // As Load; of a name without a file, the cells that the store has trials of, and a note says so.
  Experiment LoadOrStored(const std::string& name);
  std::vector<Experiment> LoadAll(const std::string& name);  // of a paper, or the one
  // As LoadAll, of several names, with methods added to their axes of methods. methods: names, or
  // files of methods. Live cells of these methods get blocks next to their references, on the hosts
  // of `launches`; hosts that are not known yet are asked. Throws Error{kConfig} if no axis lists
  // methods.
  std::vector<Experiment> LoadJoined(const std::vector<std::string>& names,
                                     std::vector<std::string> methods, RunOptions& launches);

  // The store's trials, as Store::Rows; warns about trials that are left out.
  std::vector<TrialRow> Rows() const;
  std::vector<std::unique_ptr<LoadedExperiment>> WithResults(std::vector<Experiment> experiments);
  std::unique_ptr<LoadedExperiment> LoadWithResults(const std::string& name);  // as LoadOrStored

  // From now on results are of the machine whose hash begins with `begin`. Without this call they
  // are of this machine, or, if it has no results, of the machine of the newest trial.
  void ShowSystem(const std::string& begin) { system_ = begin; }

  // From now on results are as pages show them, which others may see.
  void ShowOthers() { for_others_ = true; }

  // Options of a run with the program's root and worker. Other hosts find the worker by its
  // absolute path. Throws the errors of ReadLaunchMethod.
  RunOptions OptionsOfRuns(const LaunchOptions& launch) const;
  // LearnNodes asks the hosts for their description (RunOptions::nodes) if launches are across
  // hosts and nobody has asked yet. It prints what would fail there. RememberNodes takes the
  // description from the newest trials, for hosts that do not answer.
  void LearnNodes(RunOptions& options) const;
  // What launches are on, by the newest trials, without asking.
  void RememberNodes(RunOptions& options) const;
  PlanContext Context(const RunOptions& options);
  RunSummary Run(const std::vector<Experiment>& experiments, RunOptions options);

 private:
  std::filesystem::path FileOf(const std::string& name) const;
  std::vector<std::string> NamesOfFiles() const;  // experiments, as users name them
  // The first file or folder of this name beneath experiments(); "" if there is none.
  std::filesystem::path FindExperiment(const std::string& name) const;
  std::filesystem::path FindPaper(const std::string& name) const;
  std::vector<Experiment> LoadAll(const std::string& name, std::span<const std::string> joined);

  Settings settings_;
  Store store_;
  std::optional<Catalog> catalog_;
  std::string system_;  // how its hash begins, or ""
  bool for_others_ = false;
};

// Runs a command on this program's terminal and returns its exit status; 127 if there is none of
// that name, 128 + N if signal N ended it.
int RunCommand(const std::vector<std::string>& command);

// Runs a Python package of the project by its folder, with the program's Python, and returns its
// exit status, as RunCommand.
int RunPackage(const Program& program, const std::filesystem::path& package,
               const std::vector<std::string>& arguments);

// Prints the output of --json. Bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::json& value);

}  // namespace sparfuse::harness
