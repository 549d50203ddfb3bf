// Names what is not the same in the trials of two machines, or within those of one.
#pragma once

#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct FactDifference {
  std::string name;                 // "software.nccl", "system.cpu_model"
  std::vector<std::string> values;  // by side: all that it has, in order, joined by " | "
  bool hidden = false;              // a side has several, and its numbers are averages over them
};

// Of the systems first, then of what trials record of software, environment and sources. What
// changes from trial to trial (load, arguments, where ranks ran) is left out.
std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides);

}  // namespace sparfuse::harness
