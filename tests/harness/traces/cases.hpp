// Finds the traces and logs that tests read.
#pragma once

#include <string>

#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {

inline std::string Case(const std::string& name) {
  return (testing::SourceDirectory() / "tests/harness/traces/cases" / name).string();
}

}  // namespace sparfuse::harness
