// Judges what the ranks of a preflight found: whether trials would run on these hosts, and whether
// they would be of one machine.
#pragma once

#include <string>
#include <vector>

#include "harness/machine/doctor.hpp"
#include "harness/run/live/hosts/preflight.hpp"

namespace sparfuse::harness {

// Each names the hosts that differ from rank 0's, and what mends it. kError: trials would fail.
std::vector<Finding> JudgePreflight(const Preflight& preflight, const PreflightRequest& request);

// A line a host: what it is made of, beside the others.
std::string TableOfHosts(const Preflight& preflight);

}  // namespace sparfuse::harness
