// Writes the files of a new baseline, a method, a planner of its own, the planner's test, and its
// line in the registry: `sparfuse new baseline`.
#pragma once

#include <string>
#include <vector>

namespace sparfuse::harness {

struct SourceFile {
  std::string path;  // in the project's folder
  std::string text;
};

// "" where a baseline may have the name, else what was expected. It is a folder, a method, and with
// '_' for '-' the stem of C++ files.
std::string WhatIsWrongWithBaselineName(const std::string& name);

// NAME.toml, the planner's header and source, and its test. They build and pass the conformance
// suites as they are: the planner closes a unit after a number of tensors.
std::vector<SourceFile> BaselineFiles(const std::string& name);

// baselines/registry.cpp with the planner's include and its line. Throws Error{kData} where the
// text has no place for them.
std::string RegistryWith(const std::string& registry, const std::string& name);

}  // namespace sparfuse::harness
