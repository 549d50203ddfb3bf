// The laws of sparsifier_conformance_test.cpp on sparsifiers written in Python.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "core/error.hpp"
#include "harness/python_file.hpp"
#include "tests/sparsifier_oracle.hpp"

namespace sparfuse {
namespace {

constexpr const char* kUsage =
    "usage: sparsifier-conformance python:FILE.py:ClassName... [--gtest_filter=PATTERN ...]\n"
    "Tests the laws of every sparsifier on classes with select(g, k), constructed with their "
    "defaults.\n";

// Makes what is given the subjects, each by its name as given: one with the hash of its file's
// content would be another test after every edit. Making one of each first tells once what Python
// refuses, and not law by law.
void TestThese(const std::vector<std::string>& given) {
  std::map<std::string, std::string> resolved;
  for (const std::string& name : given) {
    if (!IsPythonSparsifier(name)) {
      SPARFUSE_THROW(
          kConfig, fmt::format("unknown argument \"{}\"; expected python:FILE.py:ClassName", name));
    }
    resolved[name] = PythonSparsifierName(name, std::filesystem::current_path());
    ResolveSparsifier(resolved[name]).make({}, 0);
  }
  testing::Subjects& subjects = testing::UnderTest();
  subjects.names.clear();
  for (const auto& [name, full] : resolved) subjects.names.push_back(name);
  subjects.find = [resolved](const std::string& name) -> const SparsifierDescriptor& {
    const auto found = resolved.find(name);
    return ResolveSparsifier(found == resolved.end() ? name : found->second);
  };
  // The plugin's kernels are its own: no scope of this program changes what they run on.
  subjects.isas = {ActiveIsa()};
}

}  // namespace
}  // namespace sparfuse

int main(int argc, char** argv) {
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(sparfuse::kUsage, stdout);
      return 0;
    }
    if (!argument.starts_with("--gtest_")) names.push_back(argument);
  }
  if (names.empty()) {
    std::fputs(sparfuse::kUsage, stderr);
    return 2;
  }
  try {
    sparfuse::TestThese(names);
  } catch (const sparfuse::Error& error) {
    fmt::print(stderr, "sparsifier-conformance: {}\n", error.what());
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  // googletest has taken out what it knows; for the rest it would print its help and succeed.
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--gtest_")) {
      fmt::print(stderr, "sparsifier-conformance: googletest does not know {}\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
