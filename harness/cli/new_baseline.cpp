// Writes the files of a new baseline and its line in the registry: a method, its own planner, and
// the planner's test. Runs `sparfuse new baseline`.

#include "harness/cli/new_baseline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/program_folder.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::size_t kLongestName = 24;  // longer names would break 100 columns

// Paths of files are relative to the project's folder. Filled replaces the @names@ in the texts.

constexpr std::string_view kMethod = R"(name        = "@name@"
title       = "@Type@"
paper       = "unpublished"
summary     = "sparsification ahead; every buffer holds the same number of tensors"
revision    = 1
strategy    = "ahead"
planner     = "PLANNER"
sparsifier  = "topk"
feedback    = "residual"
collective  = "sparse-allgather"
deviations  = ""
)";

constexpr std::string_view kPlannerClass = R"(class @Type@ final : public Planner {
 public:
  explicit @Type@(std::size_t tensors_per_unit) : per_unit_(tensors_per_unit) {}

  Plan MakePlan(const PlanInput& input) const override {
    const std::size_t tensors = input.layout.tensors();
    const double density = input.sparsified == Sparsified::kNever ? 1.0 : input.density;
    Plan plan;
    for (std::size_t first = 0; first < tensors; first += per_unit_) {
      const std::size_t last = std::min(tensors, first + per_unit_);
      plan.units.push_back({first, last, input.sparsified, density});
    }
    return plan;
  }

 private:
  const std::size_t per_unit_;
};

)";

constexpr std::string_view kHeader = R"(// Decides which tensors the method @name@ sends together.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

// Closes a unit after `tensors_per_unit` tensors in ready order.
extern const PlannerDescriptor k@Type@;

}  // namespace sparfuse::baselines
)";

constexpr std::string_view kSourceHead = R"(#include "baselines/@name@/@stem@.hpp"

#include <algorithm>

namespace sparfuse::baselines {
namespace {

)";

constexpr std::string_view kDescriptor = R"(}  // namespace

const PlannerDescriptor k@Type@ = {
    "@name@",
    "the same number of tensors in every unit",
    "unpublished",
    1,
    {{"tensors_per_unit", std::int64_t{4}, 1, 1e9, {}, "tensors in a unit"}},
    [](const Options& options) -> std::unique_ptr<Planner> {
      const auto per_unit = static_cast<std::size_t>(IntOption(options, "tensors_per_unit"));
      return std::make_unique<@Type@>(per_unit);
    }};

}  // namespace sparfuse::baselines
)";

constexpr std::string_view kTest =
    R"(// Tests the property that makes the method @name@ that method.
#include <gtest/gtest.h>

#include "tests/support/planning.hpp"

namespace sparfuse {
namespace {

TEST(@Type@, ClosesAUnitAfterSoManyTensors) {
  GradientLayout layout;
  for (int t = 0; t < 10; ++t) layout.Add("tensor", {8}, 8);
  const PlanInput input{layout, {2, 1}, 0.5, Sparsified::kAhead};
  const Options options = {{"tensors_per_unit", std::int64_t{4}}};
  const Plan plan = testing::PlanOf("@name@", input, options);
  EXPECT_EQ(plan.UnitSizes(), "4,4,2");
}

}  // namespace
}  // namespace sparfuse
)";

std::string TypeOf(const std::string& name) {
  std::string type;
  bool begins = true;
  for (const char c : name) {
    if (c != '-')
      type += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = c == '-';
  }
  return type;
}

[[noreturn]] void FailRegistry(const std::string& missing) {
  SPARFUSE_THROW(kData, "baselines/registry.cpp: no " + missing +
                            " to add one beside: expected its tables as they are in git");
}

// `text` with `include` among the project's includes, which are sorted and follow the library's.
std::string WithInclude(std::string text, const std::string& include) {
  std::size_t at = text.rfind("#include <");
  at = at == std::string::npos ? at : text.find("#include \"", at);
  if (at == std::string::npos) FailRegistry("#include");
  while (text.compare(at, 10, "#include \"") == 0 &&
         text.substr(at, text.find('\n', at) - at) < include)
    at = text.find('\n', at) + 1;
  return text.insert(at, include + "\n");
}

// `text` with `line` after the last line of the table of planners.
std::string WithPlanner(std::string text, const std::string& line) {
  const std::size_t table = text.find("> Planners() {");
  const std::size_t last = text.rfind("    table.push_back(", text.find("\n}\n", table));
  if (table == std::string::npos || last == std::string::npos || last < table)
    FailRegistry("line of Planners()");
  return text.insert(text.find('\n', last) + 1, line + "\n");
}

// NAME.toml, the planner's header and source, and its test. They build and pass the conformance
// suites unchanged: the planner closes a unit after a number of tensors.
std::vector<SourceFile> BaselineFiles(const std::string& name) {
  const std::string code = "baselines/" + name + "/" + StemOf(name);
  return {
      {"baselines/" + name + "/" + name + ".toml", MethodText(name, name)},
      {code + ".hpp", Filled(kHeader, name)},
      {code + ".cpp", Filled(kSourceHead, name) + PlannerClass(name) + Filled(kDescriptor, name)},
      {"tests/" + code + "_test.cpp", Filled(kTest, name)}};
}

// baselines/registry.cpp with the planner's include and its line. Throws Error{kData} if the text
// has no place for them.
std::string RegistryWith(const std::string& registry, const std::string& name) {
  return WithPlanner(
      WithInclude(registry, Filled("#include \"baselines/@name@/@stem@.hpp\"", name)),
      Filled("    table.push_back(baselines::k@Type@);", name));
}

namespace fs = std::filesystem;

void RefuseTakenNames(Program& program, const std::string& name,
                      const std::vector<SourceFile>& files) {
  const auto refuse = [&](const std::string& what) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("new baseline {}: {} already: expected a name that is not taken", name, what));
  };
  if (FindEntry(program.catalog().methods, name) != nullptr) refuse("a method has this name");
  if (FindEntry(program.catalog().planners, name) != nullptr) refuse("a planner has this name");
  if (fs::exists(program.root() / "baselines" / name)) refuse("there is baselines/" + name);
  // Test targets are named after their files.
  const std::string test = fs::path(files.back().path).filename();
  for (const auto& entry : fs::recursive_directory_iterator(program.root() / "tests")) {
    if (entry.path().filename() == test) refuse("there is a test " + test);
  }
}

// The command that builds the program, the worker if there is one, and the test, from the project's
// folder. CMake calls the ninja that configured the build. A ninja of another version cannot read
// the build's log and compiles everything again.
std::string BuildLine(const Program& program, const std::string& test) {
  const fs::path build = BuildFolderOf(program);
  const fs::path own = program.root() / ".venv" / "bin" / "cmake";
  return fmt::format("{} --build {} --target sparfuse {}{}",
                     fs::exists(own) ? ".venv/bin/cmake" : "cmake",
                     ShellQuoted(build.lexically_relative(fs::absolute(program.root())).string()),
                     fs::exists(program.worker()) ? "sparfuse-worker " : "", test);
}

}  // namespace

std::string StemOf(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string Filled(std::string_view text, const std::string& name) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    filled += text.substr(0, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = text.find('@', at + 1);
    const std::string_view field = text.substr(at + 1, end - at - 1);
    filled += field == "name" ? name : field == "stem" ? StemOf(name) : TypeOf(name);
    text.remove_prefix(end + 1);
  }
  return filled;
}

std::string MethodText(const std::string& planner, const std::string& name) {
  std::string text = Filled(kMethod, name);
  return text.replace(text.find("PLANNER"), 7, planner);
}

std::string PlannerClass(const std::string& name) { return Filled(kPlannerClass, name); }

void CheckBaselineName(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  const bool fits = !name.empty() && name.size() <= kLongestName &&
                    std::isalpha(static_cast<unsigned char>(name.front())) && name.back() != '-' &&
                    name.find("--") == std::string::npos &&
                    std::all_of(name.begin(), name.end(), good);
  if (fits) return;
  SPARFUSE_THROW(kConfig, fmt::format("new baseline \"{}\": expected a name of at most {} small "
                                      "letters, digits and single '-' that begins with a letter",
                                      name, kLongestName));
}

fs::path BuildFolderOf(const Program& program) {
  const fs::path build = ProgramFolder().parent_path();
  return fs::exists(build / "CMakeCache.txt") ? build : program.root() / "build" / "release";
}

int NewBaselineVerb(Program& program, const std::string& name) {
  CheckBaselineName(name);
  const fs::path registry = program.root() / "baselines" / "registry.cpp";
  if (!fs::exists(registry))
    SPARFUSE_THROW(kConfig,
                   "no " + registry.string() + ": expected the project's root with --root");
  const std::vector<SourceFile> files = BaselineFiles(name);
  RefuseTakenNames(program, name, files);
  const std::string registered = RegistryWith(ReadFile(registry), name);
  for (const SourceFile& file : files) {
    MakeDirectories((program.root() / file.path).parent_path());
    WriteFileDurably(program.root() / file.path, file.text);
    fmt::print("wrote {}\n", file.path);
  }
  WriteFileDurably(registry, registered);
  const std::string test = fs::path(files.back().path).stem();
  fmt::print(
      "changed baselines/registry.cpp\n\n{0} is now a method, with a planner that closes a unit "
      "after four tensors. Next:\n  1. {1}: the source, its defaults and every deviation\n  2. "
      "{2}: the planner's rule; {3}: the property that identifies the method\n  3. {5}\n     "
      "builds the changed parts; then `ctest -R {4}` in the build folder and\n     `sparfuse check "
      "method {0}`\n  4. sparfuse plan quick --with-method {0}, then run or "
      "reproduce\ndocs/adding-a-baseline.md has the details.\n",
      name, files[0].path, files[2].path, files[3].path, test, BuildLine(program, test));
  return kDone;
}

}  // namespace sparfuse::harness
