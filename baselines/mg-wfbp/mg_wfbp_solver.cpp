#include "baselines/mg-wfbp/mg_wfbp_solver.hpp"

#include <algorithm>

namespace sparfuse::baselines {

std::vector<std::size_t> MgWfbpUnits(const ReadyTensors& tensors, const AllReduceCost& cost) {
  CheckReadyTensors(tensors, "MG-WFBP");
  RequireSeconds("MG-WFBP", "alpha_seconds", cost.alpha_seconds);
  RequireSeconds("MG-WFBP", "seconds_per_byte", cost.seconds_per_byte);

  std::vector<std::size_t> units = {1};
  std::size_t elements = tensors.elements[0];  // of the unit that is open
  double ready = tensors.backward_seconds[0];
  double begin = ready;  // of its all-reduce, were it closed here
  for (std::size_t t = 1; t < tensors.elements.size(); ++t) {
    ready += tensors.backward_seconds[t];
    const double end = begin + cost.Seconds(elements);
    if (ready < end && (begin > ready || ready - begin < cost.alpha_seconds)) {
      ++units.back();
      elements += tensors.elements[t];
      begin = std::max(begin, ready);
    } else {
      units.push_back(1);
      elements = tensors.elements[t];
      begin = std::max(end, ready);
    }
  }
  return units;
}

}  // namespace sparfuse::baselines
