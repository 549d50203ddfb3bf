// Judges an experiment as a whole: what has not run, which claims fail, how many have which
// verdict.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// The list of a report's section "not run": [{"experiment", "what", "reason"}], first the entries
// of the experiment's file, then, part by part and mode by mode, the cells without a trial.
nlohmann::json NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results);

// Whether --strict fails. With `modelled_only`, claims about other cells do not count.
bool AnyClaimFails(const std::vector<PartResult>& results, bool modelled_only);

// "64 claims: 4 consistent with the paper, 48 holds"
std::string VerdictCounts(const std::vector<PartResult>& results);

}  // namespace sparfuse::harness
