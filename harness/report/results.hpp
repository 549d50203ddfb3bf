// Decides which trials count, joins them with their cells, judges claims, and compares the model's
// step times with live ones. Tables, figures and reports show these results and nothing else.
#pragma once

#include <cstddef>
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

// Whether the times of disturbed trials count. Their counts and computed results always do.
enum class DisturbedTrials { kApart, kCount };

struct CellResult {
  const Cell* cell = nullptr;
  // block (TrialRow::paired_block) -> the newest trial that counts; a disturbed one only if there
  // is no other
  std::map<int, const TrialRow*> trials;
  std::set<int> disturbed;  // blocks whose trial is disturbed
  DisturbedTrials disturbed_trials = DisturbedTrials::kApart;
  // Trials of the same system and revisions that failed or were called bad, oldest first.
  std::vector<const TrialRow*> set_aside;
  std::string failure;   // "" if a trial counts; else the failure, "not run", "stale"
  bool invalid = false;  // a correctness check failed

  // By block; times of disturbed trials only if these count.
  std::map<int, double> Values(const std::string& metric) const;
  // The same of the disturbed trials alone, which Values leaves out.
  std::map<int, double> ValuesApart(const std::string& metric) const;
  // The number of blocks whose times count.
  std::size_t blocks() const;
  // Whether there are trials, and none whose times count.
  bool OnlyDisturbed() const { return !trials.empty() && blocks() == 0; }
  // Geometric mean of the blocks; none without values, or if one of them is not above 0.
  std::optional<Interval> Over(const std::string& metric) const;
  // Arithmetic mean of the blocks; none without values.
  std::optional<Interval> Average(const std::string& metric) const;
  std::optional<double> Mean(const std::string& metric) const;
  // Whether `metric` counts the training until a target, which no trial reached.
  bool MissedTarget(const std::string& metric) const;
  // Whether the threads of all ranks exceed the cores of the machine that ran them.
  bool Oversubscribed() const;
};

// The trials whose series are drawn. Of a throughput cell these are the trials whose times count,
// if there are any. Other trials are drawn also if they were disturbed, because the training
// results are valid.
std::map<int, const TrialRow*> DrawnTrials(const CellResult& cell);
// The reason why nothing of the cell is drawn: its failure, or "disturbed"; "" otherwise.
std::string ShownFailure(const CellResult& cell);

// Adds a trial that is newer than the trials already there. The newest of a block counts, but a
// disturbed one counts only if there is no other. A trial that does not count is set aside.
void AddTrial(CellResult& result, const TrialRow& trial);

// The metric of `of` divided by that of `over`, in the blocks in which both are above 0. For step
// times and derived metrics, two trials that took turns in one launch are compared round by round.
std::map<int, double> RatiosByBlock(const CellResult& of, const CellResult& over,
                                    const std::string& metric);
// Their LogInterval: over blocks, for rounds of a launch are not independent.
std::optional<Interval> RatioOf(const CellResult& of, const CellResult& over,
                                const std::string& metric);
// The number of blocks in which both have trials and these took turns.
std::size_t BlocksInTurn(const CellResult& of, const CellResult& over);

// A result of others. It is listed with ours and compared with nothing.
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

  // The position of the cell of `method` with which cell `i` is compared. It has the same setting.
  // It has the same sparsity if there is such a cell, else it is the dense one, else it has the
  // same density, since a method may have a sparsifier of its own. For a dense cell it is the only
  // cell of `method`. None if there is no such cell, or if several fit.
  std::optional<std::size_t> CounterpartOf(std::size_t i, const std::string& method) const;
  // The ratio to that cell; none without it.
  std::optional<Interval> RatioTo(std::size_t i, const std::string& method,
                                  const std::string& metric) const;
  // The reference of cell `i`; none for the reference itself.
  std::optional<std::size_t> ReferenceOf(std::size_t i) const;
};

// The results of `parts`, which belong to one experiment. `rows` must outlive them. All trials are
// from one machine: `machine_hash`, the machine at hand, if it has any, else the machine of the
// newest trial. Trials of older revisions or older profiles do not count.
std::vector<PartResult> ResultsOf(const std::vector<Part>& parts, const Catalog& catalog,
                                  const std::vector<TrialRow>& rows,
                                  const std::string& machine_hash,
                                  DisturbedTrials disturbed = DisturbedTrials::kApart);

// The hash of the machine on which a trial ran, or whose profile it was computed from. "" for a
// declared cluster, which is a setting and not a machine, and for imported results.
std::string MachineOf(const TrialRow& row);

// "timeout", "invalid (replicas_equal)", "called bad", "numbers not of its series": why a trial
// does not count.
std::string FailureOf(const TrialRow& trial);

// "Intel Xeon ..., 2 cores", from a trial's description of a machine or of a node. For a system of
// several hosts: "nodes of Intel Xeon ..., network Ethernet 25 Gbit/s".
std::string HardwareLine(const nlohmann::json& machine);
// The hardware of a trial. For a modelled trial, the profile and the kind of its numbers: "profile
// of Intel Xeon ...", measured on the machine at hand, or "profile mine (declared)".
std::string HardwareLine(const TrialRow& trial);

struct ClaimResult {
  const Claim* claim = nullptr;
  std::optional<Interval> ours;  // the compared value; none also if a ratio's value is 0
  std::size_t n = 0;             // blocks that have the values
  Verdict verdict = Verdict::kNotRun;
  std::string mode;  // of the numbers: the weaker of the two cells'

  // Whether --strict refuses it: a paper's number that is not reproduced, or a relation that does
  // not hold or was not evaluated. A relation may be inconclusive.
  bool fails_strict() const;
};
std::vector<ClaimResult> JudgeClaims(const PartResult& result);

// The mode of a number made of both cells: the weaker of measured, emulated, modelled.
std::string WeakerMode(const CellResult& of, const CellResult& over);

// The largest median error of the model that is accepted, on cells that are not oversubscribed.
inline constexpr double kMayBeOff = 0.15;

struct PredictedCell {
  const Cell* cell = nullptr;          // the live one
  std::size_t position = 0, twin = 0;  // of the two cells in their parts
  Interval live;                       // step_seconds
  double predicted = 0;
  bool oversubscribed = false;  // workers times threads exceed the cores
  // By two formulas, without the model: the longer of the first rank's computation and the time on
  // links, and their sum; none if the predicted trial lacks them.
  std::optional<double> longest, sum;
  double error() const { return predicted / live.value - 1; }
  bool within_interval() const { return live.low <= predicted && predicted <= live.high; }
};

struct PredictionSummary {
  std::vector<PredictedCell> cells;    // that both engines ran
  std::optional<double> median_error;  // of |error|, cells that are not oversubscribed
  std::optional<double> oversubscribed_median_error;
  // The same of the formulas, cells that are not oversubscribed.
  std::optional<double> longest_median_error, sum_median_error;
  // Pairs of methods of the same setting, not oversubscribed, whose live intervals do not overlap;
  // and how many of them the model puts in the same order.
  std::size_t ordered_pairs = 0, agreeing_pairs = 0;
};

// twins: the results of PredictedPart(*live.part). `shown`: positions of the live cells to look at;
// null: all.
PredictionSummary ComparePrediction(const PartResult& live, const PartResult& twins,
                                    const std::set<std::size_t>* shown = nullptr);

}  // namespace sparfuse::harness
