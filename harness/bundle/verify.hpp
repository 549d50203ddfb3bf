// Checks a bundle by itself: no store, no experiment file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/bundle/bundle.hpp"

namespace sparfuse::harness {

struct Verification {
  nlohmann::json table;               // TableOfTrials, of the trials that are as they were written
  std::vector<std::string> problems;  // sentences; none: every byte is as it was written
};

// Reads every byte of the bundle and makes its table again.
Verification Verify(const Bundle& bundle);

}  // namespace sparfuse::harness
