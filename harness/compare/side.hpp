// A machine's trials, as one side of a comparison, and how a setting's time divides there.
#pragma once

#include <compare>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
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

// Two regimes differ if a share differs by this factor.
inline constexpr double kOtherRegime = 4;

// A reference that moves by more while a block is measured is worth a word.
inline constexpr double kControlMoved = 0.1;

// How a setting's time divides on a machine. If two machines differ much in it, their ratios answer
// two questions, and no verdict joins them.
struct Regime {
  // Of the reference's step: the exposed communication over the rest. None if no trial knows both.
  std::optional<double> communication;
  // The drift of the reference's step time over blocks: the largest over the smallest, less 1.
  // Smaller differences cannot be seen. None for one block.
  std::optional<double> drift;
  // How far the reference moved while a block was measured; 0.1 is 10 %. It is the larger of two
  // numbers: the distance of its step time from the median of blocks, either way, and the range of
  // its rounds within the block from the lower to the upper quartile. Blocks without both are left
  // out.
  std::map<int, double> moved;
  int ranks = 0, hosts = 0;  // hosts: 0 if the trial does not say
  std::string card_links;    // CardLinksOf

  // "within a node", "between nodes", "both", or "" if hosts are not known.
  std::string links() const;
  // The same with card_links: "within a node, cards by NVLink".
  std::string LinkWords() const;
  double ranks_per_host() const { return static_cast<double>(ranks) / hosts; }
};

Regime RegimeOf(const SideCell& reference);

// "" if ratios of the two can be compared, else the reason why not.
std::string WhyOtherRegime(const Regime& first, const Regime& second);

}  // namespace sparfuse::harness
