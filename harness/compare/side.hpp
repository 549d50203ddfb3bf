// A machine's trials, as one side of a comparison.
#pragma once

#include <compare>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct SystemSide {
  std::string name;            // how tables call it
  std::string hardware;        // a line
  std::vector<TrialRow> rows;  // of the machine, oldest first
  // outcome.json of one of them; null if there is none. JSON, because it may be of another version.
  std::function<nlohmann::json(const TrialRow&)> outcome;
};

// Makes a side's `outcome` for trials of the store with this results folder.
std::function<nlohmann::json(const TrialRow&)> OutcomesIn(const std::filesystem::path& results);

// The identity of a compared cell: a configuration within a part of an experiment.
struct CellKey {
  std::string experiment, part, config_hash;
  auto operator<=>(const CellKey&) const = default;
};

// The trials of one side that count: those of its newest revisions, with the number of hosts of the
// newest of these.
struct SideCell {
  CellResult result;
  const TrialRow* newest = nullptr;
};

// The cells with throughput or convergence trials. Points into side.rows.
std::map<CellKey, SideCell> CellsOf(const SystemSide& side, DisturbedTrials disturbed);

}  // namespace sparfuse::harness
