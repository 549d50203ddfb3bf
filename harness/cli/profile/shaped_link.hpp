// Reads the option --link of verbs that measure.
#pragma once

#include <string>

#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// {gbps, alpha_us} of "1:100", and {intra_node_gbps, intra_node_us} where "1:100:10:100" goes on.
// Throws Error{kConfig} naming the option, also for a link that cannot be emulated.
LinkShape ParseLink(const std::string& text);

}  // namespace sparfuse::harness
