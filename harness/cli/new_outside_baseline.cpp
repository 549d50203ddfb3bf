// Writes the files of a new baseline into a folder of the user's: a method, its own planner in C++
// or in Python, and the planner's test. Runs `sparfuse new baseline --out-of-tree`.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/base/error.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/cli/new_baseline.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

// Paths of files are relative to that folder. Filled replaces the @names@ in the texts.

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

// The path as a word for a shell.
std::string Word(const fs::path& path) {
  const std::string word = path.string();
  const bool plain = std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-+=:,./@%").find(c) != std::string_view::npos;
  });
  return plain ? word : ShellQuoted(word);
}

}  // namespace

int NewOutsideBaselineVerb(Program& program, const std::string& name, const fs::path& folder,
                           bool python) {
  CheckBaselineName(name);
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
    files.push_back({stem + ".cpp",
                     Filled(kPluginHead, name) + PlannerClass(name) + Filled(kPluginParts, name)});
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

}  // namespace sparfuse::harness
