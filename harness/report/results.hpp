// Cells joined with their trials: which trials count, what they say.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/store/index.hpp"

namespace sparfuse::harness {

struct CellResult {
  const Cell* cell = nullptr;
  std::map<int, const TrialRow*> trials;  // block -> the newest trial that counts
  std::string failure;   // "" where a trial counts; else its kind, "not run", "stale"
  bool invalid = false;  // a correctness check failed

  std::map<int, double> Values(const std::string& metric) const;
  std::optional<Interval> Over(const std::string& metric) const;  // its blocks; none without values
  std::optional<double> Mean(const std::string& metric) const;
};

struct PartResult {
  const Part* part = nullptr;
  std::vector<CellResult> cells;      // as in the part
  std::vector<std::string> hardware;  // of the trials shown, a line each
  std::size_t other_systems = 0;      // trials left out because another machine made them

  // The position of the reference's cell that agrees with cell `i` in all but the method; none for
  // the reference itself.
  std::optional<std::size_t> ReferenceOf(std::size_t i) const;
};

// rows must outlive the result. `machine_hash`: of the machine at hand; its trials are preferred to
// those of others, and systems are never mixed. Trials of older revisions do not count.
PartResult ResultsOf(const Part& part, const Catalog& catalog, const std::vector<TrialRow>& rows,
                     const std::string& machine_hash);

// "Intel Xeon ..., 2 cores", or the profile of a modelled trial.
std::string HardwareLine(const nlohmann::json& system);

struct ClaimResult {
  const Claim* claim = nullptr;
  std::optional<Interval> ours;  // of what the claim compares; none also where a ratio's value is 0
  std::size_t n = 0;             // blocks that have the values
  Verdict verdict = Verdict::kNotRun;
  std::string mode;  // of the numbers: the weaker of the two cells'

  // What --strict does not let pass: a paper's number that is not reproduced, a relation that does
  // not hold or was not looked at. A relation may be inconclusive.
  bool fails_strict() const;
};
std::vector<ClaimResult> JudgeClaims(const PartResult& result);

}  // namespace sparfuse::harness
