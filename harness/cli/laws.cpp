// Runs the laws of one part, after building their program, and proofs of convergence with numbers:
// `sparfuse check`, `sparfuse prove`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "baselines/registry.hpp"
#include "core/adtopk/proofs/proofs.hpp"
#include "core/base/program_folder.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/feedback/feedback.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

// The program with the laws of a kind of part.
struct Laws {
  std::string kind;
  std::string program;  // its build target
  // Selects the program's tests of a part; @ stands for the part's name. If it is "", the name is
  // an argument. It follows the kind in a program for several kinds.
  std::string filter;
};

constexpr const char* kLawsByKind = "part-conformance";
constexpr const char* kMethodLaws = "harness_method_conformance_test";
// Passes the file of a method to the laws.
constexpr const char* kCheckedMethod = "SPARFUSE_CHECKED_METHOD";

const std::vector<Laws>& AllLaws() {
  static const std::vector<Laws> kLaws = {{"method", kMethodLaws, "*/@_?"},
                                          {"sparsifier", "sparsifier-conformance", ""},
                                          {"collective", "collective_conformance_test", "*/@_*"},
                                          {"planner", kLawsByKind, ""},
                                          {"strategy", kLawsByKind, ""},
                                          {"feedback", kLawsByKind, ""},
                                          {"quantizer", kLawsByKind, ""},
                                          {"workload", "workload_training_step_test", "*/@"}};
  return kLaws;
}

// Throws Error{kConfig} if no registered part has the name, or no law checks it within seconds.
void CheckName(const Catalog& catalog, const std::string& kind, const std::string& name) {
  if (kind == "method") NeedEntry(catalog.methods, kind, name);
  if (kind == "sparsifier" && !IsOutsidePart(name)) FindSparsifier(name);
  if (IsOutsidePart(name)) {
    SPARFUSE_REQUIRE(kind != "method" && kind != "workload",
                     fmt::format("check {} {}: expected the name of a registered one", kind, name));
    OutsidePartName(kind, name, fs::current_path());  // throws
    return;
  }
  if (kind == "planner") FindPlanner(name);
  if (kind == "strategy") FindStrategy(name);
  if (kind == "quantizer") FindQuantizer(name);
  if (kind == "feedback") FeedbackOptions(name);
  if (kind == "collective" && FindCollective(name).native) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("check collective {}: it belongs to a transport, whose own tests "
                               "cover it; expected one of sparfuse's own collectives",
                               name));
  }
  if (kind == "workload") {
    const auto& workload = NeedTrainable(catalog, name);
    if (!workload.small.empty()) {
      SPARFUSE_THROW(kConfig, fmt::format("check workload {}: its data is made up and a step of it "
                                          "takes long; expected {}, of its family, which has data",
                                          name, workload.small));
    }
  }
}

// The build folder of this program.
fs::path BuildFolder() {
  const fs::path folder = ProgramFolder().parent_path();
  if (!fs::exists(folder / "CMakeCache.txt")) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("no CMakeCache.txt in {}: the laws are built in the program's build "
                               "folder; expected a program that lies in it",
                               folder.string()));
  }
  return folder;
}

// Builds the program and returns its path.
fs::path Built(const Program& program, const std::string& target) {
  const fs::path build = BuildFolder();
  const fs::path own = program.root() / ".venv" / "bin" / "cmake";
  const std::string cmake = fs::exists(own) ? own.string() : "cmake";
  const int status = RunCommand({cmake, "--build", build.string(), "--target", target});
  if (status != 0) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} could not build {} in {}{}", cmake, target, build.string(),
                               status == 127 ? ": no such command"
                                             : ": expected a build that was configured with "
                                               "SPARFUSE_TESTS=ON, for workloads also with "
                                               "SPARFUSE_TORCH=ON"));
  }
  for (const char* folder : {"harness", "tests"}) {
    if (const fs::path file = build / folder / target; fs::exists(file)) return file;
  }
  SPARFUSE_THROW(kInternal, fmt::format("{} was built and is not in {}", target, build.string()));
}

std::string FilterOf(const Laws& laws, std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');  // as in names of tests
  std::string filter = laws.filter;
  return "--gtest_filter=" + filter.replace(filter.find('@'), 1, name);
}

}  // namespace

std::vector<std::string> CheckableKinds() {
  std::vector<std::string> kinds;
  for (const Laws& laws : AllLaws()) kinds.push_back(laws.kind);
  return kinds;
}

// Runs the laws on a file's method instead of all registered methods.
int CheckMethodOf(Program& program, const fs::path& file) {
  ReadOutsideMethod(program.catalog(), file);  // throws, before anything is built
  std::string folders;
  for (const fs::path& folder : program.catalog().plugins) folders += folder.string() + ":";
  ::setenv(kPluginsVariable, folders.c_str(), 1);
  ::setenv(kCheckedMethod, fs::absolute(file).c_str(), 1);
  return RunCommand({Built(program, kMethodLaws).string()}) == 0 ? kDone : kTrialFailed;
}

int CheckVerb(Program& program, const CheckVerbRequest& request) {
  const auto& [kind, given] = request;
  const auto laws = std::find_if(AllLaws().begin(), AllLaws().end(),
                                 [&](const Laws& each) { return each.kind == kind; });
  if (laws == AllLaws().end()) {
    SPARFUSE_THROW(kConfig, "no laws of a kind of part named \"" + kind + "\"" +
                                Suggestion(kind, CheckableKinds()));
  }
  if (kind == "method") {
    const fs::path file = OutsideMethodFile(program.catalog(), given, fs::current_path());
    if (!file.empty()) return CheckMethodOf(program, file);
  }
  const std::string name = kind == "method" || kind == "workload"
                               ? given
                               : FoundPart(program.catalog(), kind, given, fs::current_path());
  CheckName(program.catalog(), kind, name);
  const bool by_kind =
      laws->program == kLawsByKind || (IsOutsidePart(name) && kind != "sparsifier");
  const std::string test = Built(program, by_kind ? kLawsByKind : laws->program).string();
  if (by_kind) return RunCommand({test, kind, name}) == 0 ? kDone : kTrialFailed;
  const std::string choice = laws->filter.empty() ? name : FilterOf(*laws, name);
  if (!laws->filter.empty()) {
    bool ok = false;
    const std::string tests =
        CommandOutput(ShellQuoted(test) + " --gtest_list_tests " + ShellQuoted(choice), ok);
    // The output lists a suite, then its tests, indented.
    if (!ok || tests.find("\n  ") == std::string::npos)
      SPARFUSE_THROW(kInternal, fmt::format("{} {}: no law tests {}", test, choice, name));
  }
  return RunCommand({test, choice}) == 0 ? kDone : kTrialFailed;
}

using nlohmann::json;

int ProveVerb(Program& program, const std::string& method) {
  const std::vector<ProofRow> rows = ProveAdTopK();
  json list = json::array();
  bool all = true;
  for (const ProofRow& row : rows) {
    all = all && row.holds;
    list.push_back({{"check", row.check},
                    {"statement", row.statement},
                    {"source", row.source},
                    {"measured", row.measured},
                    {"relation", RelationSign(row.relation)},
                    {"bound", row.bound},
                    {"holds", row.holds}});
    if (program.json()) continue;
    fmt::print("{:4} {:9} {:>12.5g} {:2} {:<12.5g} {}  [{}]\n", row.check,
               row.holds ? "holds" : "DOES NOT", row.measured, RelationSign(row.relation),
               row.bound, row.statement, row.source);
  }
  if (program.json()) PrintJson(list);
  if (!program.json()) {
    fmt::print("{}: {} of {} statements hold\n", method,
               std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.holds; }),
               rows.size());
  }
  return all ? kDone : kClaimNotReproduced;
}

}  // namespace sparfuse::harness
