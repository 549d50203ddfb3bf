// Checks a bundle by itself: no store, no experiment file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/bundle/bundle.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// The bundle's trials with their annotations, but for those that are not as they were written,
// which are named in `problems`.
std::vector<TrialRow> RowsOf(const Bundle& bundle, std::vector<std::string>& problems);

struct Verification {
  nlohmann::json table;               // TableOfTrials, of the trials that are as they were written
  std::vector<std::string> problems;  // sentences; none: every byte is as it was written
};

// Reads every byte of the bundle and makes its table again.
Verification Verify(const Bundle& bundle);

}  // namespace sparfuse::harness
