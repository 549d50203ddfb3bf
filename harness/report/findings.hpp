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

// "31 of 108 live trials were disturbed: other work took 22 % of the cores (median of 31). ...", ""
// where none was. Of each cell's block the trial that stands for it is looked at: one that was not
// disturbed where there is one.
std::string DisturbedWarning(const std::vector<PartResult>& results);

// The same of trials of several experiments.
std::string DisturbedWarning(const std::vector<const std::vector<PartResult>*>& results);

// A method against another on one metric, over all settings of a part where both have values.
struct Headline {
  std::string part, method, over, metric, mode;
  std::size_t settings = 0;
  Interval best;               // the ratio where it is largest, or smallest of what should be small
  double least = 0, most = 0;  // of the ratios
  std::string sentence;
};

// For each part: the pairs of methods whose ratios its claims are about; of a part without such
// claims, the paper's own method (else the best) against the part's reference. In the parts' order,
// in a part the paper's own method first, then the largest effect.
std::vector<Headline> HeadlinesOf(const Experiment& experiment,
                                  const std::vector<PartResult>& results);

// What a verdict begins with, on pages.
struct VerdictMark {
  std::string mark;  // "✓"
  std::string look;  // how pages colour it: "good", "part", "alarm" or "quiet"
};

// A claim of a row.
struct JudgedSetting : VerdictMark {
  std::string words;  // what tells it from the others of its sentence
  std::string value;  // of ours, without its interval
  std::string ours, verdict;
};

// What a sentence says of one cell, or of several; the settings the worst first.
struct JudgedSentence : VerdictMark {
  std::string sentence;
  std::vector<std::string> facts;  // metric, what is expected, modes, n
  std::vector<JudgedSetting> settings;
  bool many = false;    // more settings than a row has room for the words of
  std::string summary;  // "✗ 1 not reproduced, ✓ 2 holds"
  Table table;          // a row a setting
};

// The claims of a part, or of an experiment on the page of a paper.
struct JudgedGroup {
  std::string id, title;
  std::vector<JudgedSentence> sentences;
};

struct JudgedClaims {
  std::size_t claims = 0;
  std::string summary;   // how many verdicts there are of each kind
  std::string meanings;  // of the marks in it
  std::vector<JudgedGroup> groups;
};

// A group for each part that claims something.
JudgedClaims JudgedByPart(std::span<const PartResult> results);

// A group for each experiment that claims something, whose title ends with its own summary.
struct ClaimingExperiment {
  std::string id, title;
  std::span<const PartResult> results;
};
JudgedClaims JudgedByExperiment(std::span<const ClaimingExperiment> experiments);

nlohmann::json ToJson(const JudgedClaims& judged);  // for spec.json

}  // namespace sparfuse::harness
