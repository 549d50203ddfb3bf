// Names the resources of its host that a rank may use, and judges how the ranks of a launch share
// hosts.
#pragma once

#include <string>
#include <vector>

#include "harness/records/launch.hpp"

namespace sparfuse::harness {

// Set for ranks that may have more threads on a host than it has cores.
inline constexpr const char* kOversubscribe = "SPARFUSE_OVERSUBSCRIBE";

// WriteRanges: "0-3,8" for numbers in ascending order; "" for none. ReadRanges reads this form, and
// skips text that is not a number.
std::string WriteRanges(const std::vector<int>& numbers);
std::vector<int> ReadRanges(const std::string& text);

// The binding of this process, without card, interface and node.
RankBinding BindingOfThisProcess();

// A sentence if ranks of a host have more threads than cores that they may use; else "".
std::string WhatIsOversubscribed(const std::vector<RankBinding>& ranks, int threads_per_rank);

// A sentence if ranks of a host see only one card each and therefore not one another's; else "".
std::string WhoIsHidden(const std::vector<RankBinding>& ranks);

}  // namespace sparfuse::harness
