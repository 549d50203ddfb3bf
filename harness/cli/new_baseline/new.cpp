// Writes the files of a new baseline and its line in the registry: `sparfuse new baseline`.
#include <fmt/format.h>

#include "harness/cli/new_baseline/baseline_files.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

void RefuseTakenNames(Program& program, const std::string& name,
                      const std::vector<SourceFile>& files) {
  const auto refuse = [&](const std::string& what) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("new baseline {}: {} already: expected a name that is not taken", name, what));
  };
  if (FindEntry(program.catalog().methods, name) != nullptr) refuse("a method is called so");
  if (FindEntry(program.catalog().planners, name) != nullptr) refuse("a planner is called so");
  if (fs::exists(program.root() / "baselines" / name)) refuse("there is baselines/" + name);
  // Targets of tests are named after their files.
  const std::string test = fs::path(files.back().path).filename();
  for (const auto& entry : fs::recursive_directory_iterator(program.root() / "tests")) {
    if (entry.path().filename() == test) refuse("there is a test " + test);
  }
}

}  // namespace

int NewBaselineVerb(Program& program, const std::string& name) {
  if (const std::string wrong = WhatIsWrongWithBaselineName(name); !wrong.empty())
    SPARFUSE_THROW(kConfig, fmt::format("new baseline \"{}\": expected {}", name, wrong));
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
      "changed baselines/registry.cpp\n\n"
      "{0} is a method now, and a planner that closes a unit after four tensors. Next:\n"
      "  1. {1}: the source, its defaults and every deviation\n"
      "  2. {2}: the planner's rule; {3}: the property that makes the method that method\n"
      "  3. build, then `ctest -R {4}` in the build folder and `sparfuse check method {0}`\n"
      "  4. sparfuse plan quick --with-method {0}, then run or reproduce\n"
      "docs/adding-a-baseline.md says more.\n",
      name, files[0].path, files[2].path, files[3].path, test);
  return kDone;
}

}  // namespace sparfuse::harness
