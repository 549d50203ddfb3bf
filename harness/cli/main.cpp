// Reads the command line of `sparfuse` and calls the verb that it names.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/program_folder.hpp"
#include "harness/cli/command_line/command_line.hpp"
#include "harness/files/plain_text.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// The tree in which the program was compiled is the last resort, for a build outside of it.
fs::path DefaultRoot() {
  if (const char* root = std::getenv("SPARFUSE_ROOT")) return root;
  if (const fs::path own = OwnFolder("experiments"); !own.empty()) return own;
  std::error_code none;
  const fs::path compiled = SPARFUSE_SOURCE_DIRECTORY;
  return fs::exists(compiled / "experiments", none) ? compiled : fs::current_path(none);
}

fs::path DefaultWorker() {
  if (const char* worker = std::getenv("SPARFUSE_WORKER")) return worker;
  const fs::path folder = ProgramFolder();
  const fs::path nested = folder / "worker" / "sparfuse-worker";
  return fs::exists(nested) ? nested : folder / "sparfuse-worker";
}

// The first argument that is neither an option nor an option's value; "" if there is none.
std::string FirstWord(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with("-")) return argument;
    if (argument == "--root" || argument == "--results" || argument == "--worker" ||
        argument == "--own")
      ++i;
  }
  return "";
}

// Verbs in the groups of `sparfuse --help`.
struct VerbGroup {
  const char* title;
  std::vector<void (*)(CommandLine&)> add;
};

std::vector<VerbGroup> VerbsInOrderOfUse() {
  return {
      {"Ask before a run", {AddList, AddAdvise, AddTrace, AddDoctor, AddPlan}},
      {"Run", {AddReproduce, AddRun, AddStatus}},
      {"Read results", {AddTable, AddReport, AddFigure, AddExplain, AddCompare, AddSkill, AddSite}},
      {"Data and weights", {AddData, AddWeights}},
      {"A method of your own", {AddNew, AddCheck, AddProve}},
      {"Systems and clusters", {AddSystem, AddProfile, AddCluster, AddCalibrate}},
      {"Share results", {AddBundles, AddImport}},
      {"Keep the store in order", {AddAnnotate, AddIndex}}};
}

constexpr const char* kExamples = R"(Examples:
  sparfuse reproduce quick                       run, verify and report the experiment quick
  sparfuse run quick --with-method mine.toml     run a method of your own beside its methods,
  sparfuse table quick                           and print its results

sparfuse VERB --help lists a verb's options, with examples.)";

int Main(int argc, char** argv) {
  CommandLine line;
  line.app.require_subcommand(1);
  line.app.fallthrough();
  Program::Settings& settings = line.settings;
  settings.root = DefaultRoot();
  settings.worker = DefaultWorker();
  line.app.add_option("--root", settings.root, "the project's folder")->check(NotEmpty("a folder"));
  line.app
      .add_option("--results", line.results,
                  "the results folder (default: results in the project's folder)")
      ->check(NotEmpty("a folder"));
  line.app
      .add_option(
          "--own", settings.own,
          "a folder of your own with experiments/, methods/, profiles/ (clusters), published/ and "
          "systems/, searched first")
      ->envname("SPARFUSE_OWN")
      ->check(NotEmpty("a folder") & CLI::ExistingDirectory);
  line.app
      .add_option(
          "--plugins", settings.plugins,
          "folders with NAME.toml of methods and parts, in addition to those of SPARFUSE_PATH")
      ->check(CLI::ExistingDirectory);
  line.app.add_option("--worker", settings.worker, "the executable of live trials")
      ->check(NotEmpty("an executable"));
  for (const VerbGroup& group : VerbsInOrderOfUse()) {
    for (const auto add : group.add) {
      const std::size_t before = line.app.get_subcommands({}).size();
      add(line);
      const std::vector<CLI::App*> verbs = line.app.get_subcommands({});
      for (std::size_t i = before; i < verbs.size(); ++i) verbs[i]->group(group.title);
    }
  }
  line.app.footer(kExamples);
  AddExamples(line.app);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> verbs;
    for (const CLI::App* verb : line.app.get_subcommands({})) verbs.push_back(verb->get_name());
    const std::string word = FirstWord(argc, argv);
    if (!word.empty() && std::find(verbs.begin(), verbs.end(), word) == verbs.end()) {
      fmt::print(stderr, "error: unknown verb \"{}\"{} (sparfuse --help lists them)\n", word,
                 Suggestion(word, verbs));
      return kUsage;
    }
    if (error.get_exit_code() != 0)
      fmt::print(stderr, "error: {}: ", word.empty() ? "sparfuse" : word);
    return line.app.exit(error) == 0 ? kDone : kUsage;
  }
  // Data sets and weights of a given root lie there, too. Workers read the variable as well, so
  // that ResolveDataDirectory alone decides.
  const char* data = std::getenv("SPARFUSE_DATA");
  if ((line.app.count("--root") > 0 || std::getenv("SPARFUSE_ROOT") != nullptr) &&
      (data == nullptr || *data == '\0'))
    ::setenv("SPARFUSE_DATA", (settings.root / "results" / "data").c_str(), /*overwrite=*/1);
  settings.results = line.results.empty() ? settings.root / "results" : fs::path(line.results);
  std::signal(SIGPIPE, SIG_IGN);
  Program program(settings);
  program.ShowSystem(line.system);
  return line.act(program);
}

}  // namespace
}  // namespace sparfuse::harness

int main(int argc, char** argv) {
  try {
    return sparfuse::harness::Main(argc, argv);
  } catch (const sparfuse::Error& error) {
    fmt::print(stderr, "error: {}\n", sparfuse::harness::Visible(error.what()));
    return error.kind() == sparfuse::FailureKind::kConfig ? sparfuse::harness::kUsage
                                                          : sparfuse::harness::kTrialFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", sparfuse::harness::Visible(error.what()));
    return sparfuse::harness::kTrialFailed;
  }
}
