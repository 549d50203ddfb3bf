// Words the findings of an experiment: the warning about disturbed trials, a sentence a comparison,
// and the verdicts of its claims, the worst first.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// "31 of 108 live trials were disturbed: other work took 22 % of the cores (median of 31). ...", or
// "" if none was. For each block of a cell it looks at one trial: an undisturbed one if there is
// one.
std::string DisturbedWarning(const std::vector<PartResult>& results);

// The same of trials of several experiments.
std::string DisturbedWarning(const std::vector<const std::vector<PartResult>*>& results);

// A method against another on one metric, over all settings of a part where both have values.
struct Headline {
  std::string part, method, over, metric, mode;
  std::size_t settings = 0;
  Interval best;               // the ratio that is largest, or smallest if small is good
  double least = 0, most = 0;  // of the ratios
  std::string sentence;
};

// For each part, the pairs of methods in the ratios of its claims. A part without such claims has
// one pair: the paper's own method (else the best) and the part's reference. In the parts' order;
// within a part the paper's own method comes first, then the largest effect.
std::vector<Headline> HeadlinesOf(const Experiment& experiment,
                                  const std::vector<PartResult>& results);

// The verdicts of claims, for pages: the worst first.
struct JudgedClaims {
  std::size_t claims = 0;
  std::string summary;   // the number of verdicts of each kind
  std::string meanings;  // of the marks in it
  // [{id, title, sentences: [{mark, look, sentence, facts, settings, many, summary, table}]}]: a
  // group is of a part, or of an experiment on the page of a paper. mark: "✓"; look: how pages
  // colour it, "good", "part", "alarm" or "quiet". facts: metric, expected value, modes, n.
  // settings [{mark, look, words, value, ours, verdict}]: the claims of the sentence; words
  // distinguish them, value is ours without its interval. many: more settings than a row has room
  // for the words of. summary: "✗ 1 not reproduced, ✓ 2 holds". table: a row a setting.
  nlohmann::json groups;
};

// A group for each part that claims something.
JudgedClaims JudgedByPart(std::span<const PartResult> results);

// A group for each experiment with claims; its title ends with its own summary.
struct ClaimingExperiment {
  std::string id, title;
  std::span<const PartResult> results;
};
JudgedClaims JudgedByExperiment(std::span<const ClaimingExperiment> experiments);

nlohmann::json ToJson(const JudgedClaims& judged);  // for spec.json

}  // namespace sparfuse::harness
