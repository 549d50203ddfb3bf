// Writes the files of a new baseline: a method, its own planner, and the planner's test. Writes
// them into the tree with the planner's line in the registry, or into a folder of the user's. Runs
// `sparfuse new baseline`.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/program_folder.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;  // relative to the project's folder, or the user's
  std::string text;
};

constexpr std::size_t kLongestName = 24;  // longer names would break 100 columns

// Filled replaces the @names@ in the texts.

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

constexpr std::string_view kCMake = R"(cmake_minimum_required(VERSION 3.27)
project(@stem@ LANGUAGES C CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(sparfuse REQUIRED)

sparfuse_add_plugin(@name@ @stem@.cpp)

enable_testing()
add_executable(@stem@_test @stem@_test.cpp)
target_link_libraries(@stem@_test PRIVATE sparfuse::baselines)
add_test(NAME @stem@ COMMAND @stem@_test $<TARGET_FILE:@name@>)
)";

constexpr std::string_view kPluginHead =
    R"(// Decides which tensors the method @name@ sends together.
#include <sparfuse/plugin.hpp>

#include <algorithm>

namespace {

using namespace sparfuse;

// Closes a unit after `tensors_per_unit` tensors in ready order.
)";

constexpr std::string_view kPluginParts = R"(const PlannerDescriptor kPlanners[] = {
    {"@name@",
     "the same number of tensors in every unit",
     "unpublished",
     1,
     {{"tensors_per_unit", std::int64_t{4}, 1, 1e9, {}, "tensors in a unit"}},
     [](const Options& options) -> std::unique_ptr<Planner> {
       const auto per_unit = static_cast<std::size_t>(IntOption(options, "tensors_per_unit"));
       return std::make_unique<@Type@>(per_unit);
     }}};

}  // namespace

SPARFUSE_PLUGIN(.planners = kPlanners)
)";

constexpr std::string_view kPluginTest =
    R"(// Tests the property that makes the method @name@ that method.
//
//   @stem@_test PATH/TO/@name@.so
#include <sparfuse/baselines/plugin_library.hpp>

#include <cstdio>

int main(int, char** argv) {
  using namespace sparfuse;
  const auto& planner = FindInPlugin<PlannerDescriptor>(argv[1], "@name@", "@name@");
  GradientLayout layout;
  for (int t = 0; t < 10; ++t) layout.Add("tensor", {8}, 8);
  const PlanInput input{layout, {2, 1}, 0.5, Sparsified::kAhead};
  const auto made = planner.make({{"tensors_per_unit", std::int64_t{4}}});
  const std::string sizes = made->MakePlan(input).UnitSizes();
  if (sizes == "4,4,2") return 0;
  std::fprintf(stderr, "units of %s tensors; expected 4,4,2\n", sizes.c_str());
  return 1;
}
)";

constexpr std::string_view kClass = R"("""Decides which tensors the method @name@ sends together."""


class @Type@:
    """Closes a unit after tensors_per_unit tensors in ready order."""

    kind, paper, deviations = "planner", "unpublished", ""

    def __init__(self, tensors_per_unit=4):
        self.per_unit = tensors_per_unit

    def plan(self, layout, given):
        tensors = len(layout)
        return [min(self.per_unit, tensors - first) for first in range(0, tensors, self.per_unit)]
)";

constexpr std::string_view kClassTest =
    R"("""Tests the property that makes the method @name@ that method."""

import unittest

from @stem@ import @Type@


class @Type@Test(unittest.TestCase):
    def test_closes_a_unit_after_so_many_tensors(self):
        self.assertEqual(@Type@(tensors_per_unit=4).plan([None] * 10, None), [4, 4, 2])


if __name__ == "__main__":
    unittest.main()
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

std::string StemOf(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// `text` with my-method for @name@, my_method for @stem@ and MyMethod for @Type@.
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

// NAME.toml, of a method that merges by `planner`.
std::string MethodText(const std::string& planner, const std::string& name) {
  std::string text = Filled(kMethod, name);
  return text.replace(text.find("PLANNER"), 7, planner);
}

// The name becomes a folder, a method, and, with '_' in the place of '-', the stem of source files.
// Throws Error{kConfig} with the expected form.
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

// The one that the program is in, or the project's.
fs::path BuildFolderOf(const Program& program) {
  const fs::path build = ProgramFolder().parent_path();
  return fs::exists(build / "CMakeCache.txt") ? build : program.root() / "build" / "release";
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
  return {{"baselines/" + name + "/" + name + ".toml", MethodText(name, name)},
          {code + ".hpp", Filled(kHeader, name)},
          {code + ".cpp",
           Filled(kSourceHead, name) + Filled(kPlannerClass, name) + Filled(kDescriptor, name)},
          {"tests/" + code + "_test.cpp", Filled(kTest, name)}};
}

// baselines/registry.cpp with the planner's include and its line. Throws Error{kData} if the text
// has no place for them.
std::string RegistryWith(const std::string& registry, const std::string& name) {
  return WithPlanner(
      WithInclude(registry, Filled("#include \"baselines/@name@/@stem@.hpp\"", name)),
      Filled("    table.push_back(baselines::k@Type@);", name));
}

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

// The path as a word for a shell.
std::string Word(const fs::path& path) {
  const std::string word = path.string();
  const bool plain = std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-+=:,./@%").find(c) != std::string_view::npos;
  });
  return plain ? word : ShellQuoted(word);
}

// Writes into the project's tree, also the planner's line in the registry.
int WriteInTree(Program& program, const std::string& name) {
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

// Writes into a folder of the user's, in C++ or in Python.
int WriteOutside(Program& program, const std::string& name, const fs::path& folder, bool python) {
  if (FindEntry(program.catalog().methods, name) != nullptr ||
      FindEntry(program.catalog().planners, name) != nullptr) {
    SPARFUSE_THROW(kConfig, fmt::format("new baseline {}: sparfuse has a method or a planner of "
                                        "this name: expected a name that is not taken",
                                        name));
  }
  const std::string stem = StemOf(name);
  const std::string part = python ? Filled("python:@stem@.py:@Type@", name)
                                  : Filled("library:build/@name@.so:@name@", name);
  std::vector<SourceFile> files = {{name + ".toml", MethodText(part, name)}};
  if (python) {
    files.push_back({stem + ".py", Filled(kClass, name)});
    files.push_back({stem + "_test.py", Filled(kClassTest, name)});
  } else {
    files.push_back({"CMakeLists.txt", Filled(kCMake, name)});
    files.push_back({stem + ".cpp", Filled(kPluginHead, name) + Filled(kPlannerClass, name) +
                                        Filled(kPluginParts, name)});
    files.push_back({stem + "_test.cpp", Filled(kPluginTest, name)});
  }
  for (const SourceFile& file : files) {
    if (!fs::exists(folder / file.path)) continue;
    SPARFUSE_THROW(kConfig,
                   fmt::format("new baseline {}: {} exists already: expected a folder without it",
                               name, (folder / file.path).string()));
  }
  MakeDirectories(folder);
  for (const SourceFile& file : files) {
    WriteFileDurably(folder / file.path, file.text);
    fmt::print("wrote {}\n", (folder / file.path).string());
  }
  const std::string at = Word(folder);
  const std::string build =
      python ? fmt::format("  1. python3 {}/{}_test.py\n", at, stem)
             : fmt::format(
                   "  1. cmake --install {1} --component core --prefix {0}/sparfuse\n"
                   "     cmake -S {0} -B {0}/build -D CMAKE_PREFIX_PATH={0}/sparfuse\n"
                   "     cmake --build {0}/build && ctest --test-dir {0}/build\n",
                   Word(fs::absolute(folder).lexically_normal()), Word(BuildFolderOf(program)));
  const std::string shown = WithFolder("planner", part, folder);
  fmt::print(
      "\n{} is now a method, with a planner that closes a unit after four tensors. Next:\n{}  2. "
      "sparfuse check planner {}\n  3. sparfuse plan quick --with-method {}/{}.toml, then run or "
      "reproduce\ndocs/adding-a-baseline.md says more.\n",
      name, build, Word(shown), at, name);
  return kDone;
}

}  // namespace

int NewBaselineVerb(Program& program, const NewBaseline& wanted) {
  CheckBaselineName(wanted.name);
  return wanted.folder.empty() ? WriteInTree(program, wanted.name)
                               : WriteOutside(program, wanted.name, wanted.folder, wanted.python);
}

}  // namespace sparfuse::harness
