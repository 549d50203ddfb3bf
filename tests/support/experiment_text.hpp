// Parses experiments that a test writes as text, and returns the errors in them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "harness/experiment/experiment.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {

inline Experiment Parse(const std::string& text) {
  return ParseExperiment(TomlFile::Parse(text, "file.toml"), SmallCatalog(), "/nonexistent");
}

inline std::string ErrorOf(const std::string& text, const Catalog& catalog = SmallCatalog()) {
  return testing::ErrorOf(
      [&] { ParseExperiment(TomlFile::Parse(text, "file.toml"), catalog, "/nonexistent"); });
}

// Line 1: id, 2: [defaults], 3: mode and workload, 4: workers, 5: `line5`, 6: [[axis]], 7: methods.
inline std::string WithLine(const std::string& line5, const std::string& more = "") {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n" + line5 +
         "\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n[[axis]]\nworkers = [2, 4]\n" + more;
}

// An experiment whose line 7 is `line7`.
inline std::string WfbpWith(const std::string& line7) {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
         "method = \"wfbp\"\nworkers = 2\n" +
         line7 + "\n";
}

}  // namespace sparfuse::harness
