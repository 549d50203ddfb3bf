// Names the facts that differ between the trials of two machines, or within the trials of one.
#pragma once

#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct FactDifference {
  std::string name;                 // "software.nccl", "system.cpu_model"
  std::vector<std::string> values;  // by side: all that it has, in order, joined by " | "
  bool hidden = false;              // a side has several, and its numbers are averages over them
  // Of what is hidden, the cells whose own trials are not alike, with those that have the rarer
  // values: "b: wfbp, digits-resnet, 2 workers, 0a1b2c3d: 5.0 in e/p/...-b1-1".
  std::vector<std::string> cells = {};
};

// Of the systems first, then of what trials record of software, environment and sources. What
// changes from trial to trial (load, arguments) is left out. Unlike nodes of a system make several
// values of it; on how many hosts ranks were, and how many cores each had, is hidden where it
// varies within one setting.
std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides);

// Sets `cells` of what is hidden; names: of the sides.
void NameCells(const std::vector<std::vector<CellResult>>& sides,
               const std::vector<std::string>& names, std::vector<FactDifference>& differences);

// sides: as DifferencesOf takes them, whose `differences` these are. A variable that not all trials
// of a side have is hidden within it: its values there end with "not set". Where it had no row, as
// of machines that are alike in it, it gets one, at the end.
void AddPartlySet(const std::vector<std::vector<CellResult>>& sides,
                  std::vector<FactDifference>& differences);

}  // namespace sparfuse::harness
