// Holds how long models took to compute, for workloads that sleep instead. No LibTorch.
#pragma once

#include <cstddef>
#include <vector>

#include "workloads/models/model_sizes.hpp"

namespace sparfuse::workloads {

// Of one micro-step.
struct RecordedTimes {
  std::size_t batch = 0;  // samples
  double forward_us = 0;
  std::vector<double> backward_us;  // [tensors] in ready order, since the previous gradient
  double tail_us = 0;               // from the last gradient to the end of backward
};

// Throws Error{kInternal} where nothing is recorded.
const RecordedTimes& TimesOf(const ModelSize& model);

}  // namespace sparfuse::workloads
