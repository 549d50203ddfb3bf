// Names the threshold sparsifiers of the benchmarks, on hosts and on cards.
#pragma once

#include <string>
#include <vector>

#include "core/base/options.hpp"

namespace sparfuse::bench {

struct ThresholdVariant {
  std::string label;
  std::string sparsifier;
  Options options;
};

// Fixed stages, so that every step of the run does the same work; sidco adapts to three stages on
// Gaussian data and to one on Laplace data.
inline std::vector<ThresholdVariant> ThresholdVariants() {
  return {{"gaussiank", "gaussiank", {}},
          {"gaussiank@paper", "gaussiank@paper", {}},
          {"redsync", "redsync", {}},
          {"sidco/stages:1", "sidco", {{"adaptive", false}}},
          {"sidco/stages:3", "sidco", {{"adaptive", false}, {"stages", std::int64_t{3}}}},
          {"sidco/fit:gamma", "sidco", {{"adaptive", false}, {"fit", std::string("gamma")}}},
          {"sidco@paper", "sidco@paper", {{"adaptive", false}}},
          {"mstopk", "mstopk", {}},
          {"threshold", "threshold", {{"tau", 2.5}}}};
}

}  // namespace sparfuse::bench
