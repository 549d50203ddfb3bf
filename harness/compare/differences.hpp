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
  // If the fact is hidden: the cells whose own trials differ in it, with the trials that have the
  // rarer values: "b: wfbp, digits-resnet, 2 workers, 0a1b2c3d: 5.0 in e/p/...-b1-1".
  std::vector<std::string> cells = {};
};

// Differences of the systems first, then of software, environment and sources, as trials record
// them. Facts that change from trial to trial (load, arguments) are left out. Unlike nodes give a
// system several values. The number of hosts, and of cores on each, is hidden if it varies within
// one setting.
std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides);

// Sets `cells` of hidden facts; names: of the sides.
void NameCells(const std::vector<std::vector<CellResult>>& sides,
               const std::vector<std::string>& names, std::vector<FactDifference>& differences);

// sides: as for DifferencesOf, which gave `differences`. A variable that only some trials of a side
// have is hidden, and its values on that side end with "not set". If it has no row, because the
// machines agree in it, it gets one at the end.
void AddPartlySet(const std::vector<std::vector<CellResult>>& sides,
                  std::vector<FactDifference>& differences);

}  // namespace sparfuse::harness
