// `sparfuse reproduce`: run, judge, report; of one experiment or of all of a paper's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// What a report lists as not run: [{"experiment", "what", "reason"}], first what the file says of
// itself, then, part by part and mode by mode, the cells without a trial.
nlohmann::json NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results);

// Whether --strict fails. With `modelled_only`, claims about other cells do not count.
bool AnyClaimFails(const std::vector<PartResult>& results, bool modelled_only);

}  // namespace sparfuse::harness
