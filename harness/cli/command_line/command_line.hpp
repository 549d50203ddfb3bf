// Declares the command line of the program, the options that its verbs share, and the functions
// that add the verbs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

using Act = std::function<int(Program&)>;

// The command line while its verbs are added, and its values after it is parsed.
struct CommandLine {
  CLI::App app{"sparfuse: benchmarks of gradient sparsification and tensor fusion", "sparfuse"};
  Program::Settings settings;
  std::string results, system;
  Act act;  // of the verb that was named
};

// Refuses an empty argument. It comes from a shell variable that is not set, and nobody means a
// default by it.
CLI::Validator NotEmpty(const std::string& what);

// The names of a list that is parted by commas; blanks around a name are no part of it.
std::vector<std::string> NamesIn(const std::string& list);

enum class Speaks { kText, kTextOrJson };

// Adds a verb below `to`, the program or another verb.
CLI::App* AddVerbBelow(CommandLine& line, CLI::App& to, const std::string& name,
                       const std::string& help, Act act);
CLI::App* AddVerb(CommandLine& line, const char* name, const char* help, Speaks speaks, Act act);

// As the functions above. The verb's options fill the request, which `run` gets.
template <class Request, class Run>
std::pair<CLI::App*, std::shared_ptr<Request>> AddVerbBelow(CommandLine& line, CLI::App& to,
                                                            const std::string& name,
                                                            const std::string& help, Run run) {
  const auto request = std::make_shared<Request>();
  const Act act = [=](Program& program) { return run(program, std::as_const(*request)); };
  return {AddVerbBelow(line, to, name, help, act), request};
}
template <class Request, class Run>
std::pair<CLI::App*, std::shared_ptr<Request>> AddVerb(CommandLine& line, const char* name,
                                                       const char* help, Speaks speaks, Run run) {
  const auto request = std::make_shared<Request>();
  const Act act = [=](Program& program) { return run(program, std::as_const(*request)); };
  return {AddVerb(line, name, help, speaks, act), request};
}

// Ends the help of each verb of `app` with two examples. Throws Error{kInternal} for a verb
// without.
void AddExamples(CLI::App& app);

// Options that several verbs have.

inline constexpr const char* kNames =
    "a name beneath experiments/, a folder there (a paper), or a .toml file";

inline constexpr const char* kStored =
    "a name beneath experiments/, a .toml file, or an id that the store has trials of";

void AddWithMethod(CLI::App* verb, std::vector<std::string>& methods);

void AddKeepDisturbed(CLI::App* verb, CommandLine& line, const char* help);
inline constexpr const char* kKeepInResults = "times of disturbed trials count like others";
inline constexpr const char* kKeepInRuns = "a disturbed trial does not run again at once";

void AddSystemOption(CLI::App* verb, CommandLine& line);
void AddLaunch(CLI::App* verb, LaunchOptions& launch);
// Adds options that choose the steps and exchanges of a trace that count.
void AddTraceOptions(CLI::App* verb, TraceOptions& options);
void AddTraceImport(CLI::App* verb, TraceImport& trace);
// Adds the verb below `verb` that takes measured links into a cluster. from: the program that wrote
// the logs; "": the user names it with --from.
void AddLinkImport(CommandLine& line, CLI::App& verb, const std::string& name,
                   const std::string& help, const std::string& from);

// Each adds the verb of its name; main.cpp puts them in order.

// trial_verbs.cpp
void AddPlan(CommandLine& line);
void AddRun(CommandLine& line);
void AddReproduce(CommandLine& line);
void AddIndex(CommandLine& line);
void AddAnnotate(CommandLine& line);
void AddStatus(CommandLine& line);
void AddTable(CommandLine& line);
void AddFigure(CommandLine& line);
void AddReport(CommandLine& line);
void AddSkill(CommandLine& line);
void AddExplain(CommandLine& line);
void AddAdvise(CommandLine& line);
void AddTrace(CommandLine& line);
void AddCompare(CommandLine& line);
void AddSite(CommandLine& line);
void AddBundles(CommandLine& line);  // export, merge and verify
void AddImport(CommandLine& line);

// machine_verbs.cpp
void AddList(CommandLine& line);
void AddProve(CommandLine& line);
void AddCheck(CommandLine& line);
void AddNew(CommandLine& line);
void AddSystem(CommandLine& line);
void AddDoctor(CommandLine& line);
void AddProfile(CommandLine& line);
void AddCalibrate(CommandLine& line);
void AddCluster(CommandLine& line);

// data_verbs.cpp
void AddData(CommandLine& line);
void AddWeights(CommandLine& line);

}  // namespace sparfuse::harness
