// Declares the texts and checks that both forms of a new baseline share: the one in the tree
// (new_baseline.cpp) and the one out of it (new_outside_baseline.cpp).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

struct SourceFile {
  std::string path;
  std::string text;
};

// `text` with my-method for @name@, my_method for @stem@ and MyMethod for @Type@.
std::string Filled(std::string_view text, const std::string& name);
std::string StemOf(std::string name);

// NAME.toml, of a method that merges by `planner`.
std::string MethodText(const std::string& planner, const std::string& name);
// The planner's class, which closes a unit after a number of tensors, and an empty line.
std::string PlannerClass(const std::string& name);

// The name becomes a folder, a method, and, with '_' in the place of '-', the stem of source files.
// Throws Error{kConfig} with the expected form.
void CheckBaselineName(const std::string& name);

// The one that the program is in, or the project's.
std::filesystem::path BuildFolderOf(const Program& program);

}  // namespace sparfuse::harness
