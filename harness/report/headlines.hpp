// States what an experiment found, a sentence a comparison: the head of every report.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

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

}  // namespace sparfuse::harness
