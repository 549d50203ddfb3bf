// Takes out of what trials recorded what concerns nobody whom a report is shown to.
#pragma once

#include <string>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// `text` with files in place of absolute paths to them, and without the names of the hosts that ran
// `trial` and of this one.
std::string Shareable(const TrialRow& trial, const std::string& text);

// "2 ranks on 1 host(s)", of the list of hosts that trials record by rank.
std::string PlacementLine(const nlohmann::json& hosts);

}  // namespace sparfuse::harness
