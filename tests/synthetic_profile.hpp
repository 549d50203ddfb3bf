// A made-up profile, for planners that look at one.
#pragma once

#include "core/cost/cost_model.hpp"
#include "core/fusion/plan.hpp"
#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::testing {

// 1 ms a tensor.
inline BackwardProfile EvenBackward(std::size_t tensors) {
  return {0, 0.01, std::vector<double>(tensors, 0.001), 0.0005, 0.001};
}

// 1 Gbit/s and 100 us a message; 1 us and 1 ns an element of local work; every sparsifier of core.
inline CostModel EvenCost() {
  const PiecewiseLinear local({{0, 1e-6}, {1e6, 1e-3}});
  CostModel cost;
  for (const SparsifierDescriptor& sparsifier : Sparsifiers()) {
    cost.selection[std::string(sparsifier.name)].Add(0.01, local);
  }
  cost.pack_seconds = local;
  for (const QuantizerDescriptor& quantizer : Quantizers()) {
    cost.encode_seconds[std::string(quantizer.name)] = local;
  }
  cost.links.fill(LinkCost::FromAlphaBeta(1e-4, 8e-9));
  return cost;
}

}  // namespace sparfuse::testing
