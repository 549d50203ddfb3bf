// Decides which trials count, joins them with their cells and judges claims. Tables, figures and
// reports show these results and nothing else.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/store/index.hpp"

namespace sparfuse::harness {

// Whether the times of disturbed trials count. What such a trial counts or computes does so in
// either case.
enum class DisturbedTrials { kApart, kCount };

struct CellResult {
  const Cell* cell = nullptr;
  // block (TrialRow::paired_block) -> the newest trial that counts, a disturbed one only where
  // there is no other
  std::map<int, const TrialRow*> trials;
  std::set<int> disturbed;  // blocks whose trial is disturbed
  DisturbedTrials disturbed_trials = DisturbedTrials::kApart;
  // Trials of the same system and revisions that failed or were called bad, oldest first.
  std::vector<const TrialRow*> set_aside;
  std::string failure;   // "" where a trial counts; else what failed, "not run", "stale"
  bool invalid = false;  // a correctness check failed

  // By block; times of disturbed trials only where these count.
  std::map<int, double> Values(const std::string& metric) const;
  // The same of the disturbed trials alone, which Values leaves out.
  std::map<int, double> ValuesApart(const std::string& metric) const;
  // Blocks whose times count.
  std::size_t blocks() const;
  // Whether there are trials, and none whose times count.
  bool OnlyDisturbed() const { return !trials.empty() && blocks() == 0; }
  // Geometric mean of the blocks; none without values or where one of them is not above 0.
  std::optional<Interval> Over(const std::string& metric) const;
  // Arithmetic mean of the blocks; none without values.
  std::optional<Interval> Average(const std::string& metric) const;
  std::optional<double> Mean(const std::string& metric) const;
  // Whether the threads of all ranks exceed the cores of the machine that ran them.
  bool Oversubscribed() const;
};

// The trials whose series are drawn: of a throughput cell those whose times count, where there are
// any; what another trial learned is drawn though it was disturbed.
std::map<int, const TrialRow*> DrawnTrials(const CellResult& cell);
// Why nothing of the cell is drawn: its failure, or "disturbed"; "" otherwise.
std::string ShownFailure(const CellResult& cell);

// Adds a trial that is newer than those that are there: the newest of a block counts, a disturbed
// one only where there is no other; one that does not count is set aside.
void AddTrial(CellResult& result, const TrialRow& trial);

// `of`'s metric divided by `over`'s in the blocks where both are above 0. Step times, and what is
// made of them, of two trials that took turns in one launch are compared round by round.
std::map<int, double> RatiosByBlock(const CellResult& of, const CellResult& over,
                                    const std::string& metric);
// Their LogInterval: over blocks, for rounds of a launch are not independent.
std::optional<Interval> RatioOf(const CellResult& of, const CellResult& over,
                                const std::string& metric);
// In how many of the blocks in which both have trials these took turns.
std::size_t BlocksInTurn(const CellResult& of, const CellResult& over);

// A result of others, which stands beside ours and is compared with nothing.
struct ImportedCell {
  const TrialRow* any = nullptr;
  CellResult result;  // over its runs; it has no cell
  // Other imports of runs in `result` that have other numbers.
  std::vector<const TrialRow*> contradicting = {};
};
// All of `rows` that count, runs of one result together; by system, workload, method and workers.
std::vector<ImportedCell> ImportedCells(const std::vector<TrialRow>& rows);

struct PartResult {
  const Part* part = nullptr;
  std::vector<CellResult> cells;  // as in the part
  std::vector<std::string>
      settings;  // of each cell: equal for cells that differ in the method alone
  std::vector<std::string> hardware;   // of the trials shown, a line each
  std::vector<ImportedCell> imported;  // of the part's workloads and kind
  // Trials left out because another machine, older revisions or an older profile made them.
  std::size_t other_systems = 0, older_revisions = 0, older_profiles = 0;

  // The position of the cell of `method` that cell `i` is compared with: of the same setting, and
  // of the same sparsity if there is one, else the dense one, else the one of the same density,
  // since a method may have a sparsifier of its own; for a dense cell, the only one. None if there
  // is no such cell, and if several would do.
  std::optional<std::size_t> CounterpartOf(std::size_t i, const std::string& method) const;
  // The ratio to that cell; none without it.
  std::optional<Interval> RatioTo(std::size_t i, const std::string& method,
                                  const std::string& metric) const;
  // The reference's; none for the reference itself.
  std::optional<std::size_t> ReferenceOf(std::size_t i) const;
};

// The results of `parts`, which belong to one experiment. `rows` must outlive them. All trials are
// of one machine: `machine_hash`, that at hand, where it has any, else that of the newest trial.
// Trials of older revisions or older profiles do not count.
std::vector<PartResult> ResultsOf(const std::vector<Part>& parts, const Catalog& catalog,
                                  const std::vector<TrialRow>& rows,
                                  const std::string& machine_hash,
                                  DisturbedTrials disturbed = DisturbedTrials::kApart);

// The hash of the machine that a trial ran on, or whose profile it was computed from; "" for a
// declared cluster, which is a setting and no machine, and for what was imported.
std::string MachineOf(const TrialRow& row);

// "timeout", "invalid (replicas_equal)", "called bad", "numbers not of its series": why a trial
// does not count.
std::string FailureOf(const TrialRow& trial);

// "Intel Xeon ..., 2 cores", of a description of a machine or of a node, as trials keep it; "nodes
// of Intel Xeon ..., network Ethernet 25 Gbit/s" of a system of several hosts.
std::string HardwareLine(const nlohmann::json& machine);
// What a trial ran on; of one that is modelled the profile and what its numbers are: "profile of
// Intel Xeon ...", measured on the machine at hand, "profile mine (declared)".
std::string HardwareLine(const TrialRow& trial);

struct ClaimResult {
  const Claim* claim = nullptr;
  std::optional<Interval> ours;  // of what the claim compares; none also where a ratio's value is 0
  std::size_t n = 0;             // blocks that have the values
  Verdict verdict = Verdict::kNotRun;
  std::string mode;  // of the numbers: the weaker of the two cells'

  // Whether --strict refuses it: a paper's number that is not reproduced, a relation that does not
  // hold or was not looked at. A relation may be inconclusive.
  bool fails_strict() const;
};
std::vector<ClaimResult> JudgeClaims(const PartResult& result);

// The mode of a number made of both cells: the weaker of measured, emulated, modelled.
std::string WeakerMode(const CellResult& of, const CellResult& over);

}  // namespace sparfuse::harness
