#include "baselines/cupcake/cupcake_solver.hpp"

#include <algorithm>

namespace sparfuse::baselines {

std::vector<std::size_t> CupcakeUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                      const SecondsOfElements& exchange,
                                      CupcakeSelection selection) {
  CheckReadyTensors(tensors, "Cupcake");
  const std::size_t count = tensors.elements.size();
  std::size_t all_elements = 0;
  double all_ready = 0;
  for (std::size_t t = 0; t < count; ++t) {
    all_elements += tensors.elements[t];
    all_ready += tensors.backward_seconds[t];
  }
  double earliest = all_ready + select(all_elements) + exchange(all_elements);
  std::vector<std::size_t> units = {count};

  std::size_t elements = 0;  // of the first unit
  double ready = 0;
  for (std::size_t boundary = 1; boundary < count; ++boundary) {
    elements += tensors.elements[boundary - 1];
    ready += tensors.backward_seconds[boundary - 1];
    const std::size_t others = all_elements - elements;
    const double selected = ready + select(elements);
    const double all_backward =
        selection == CupcakeSelection::kBesideBackward ? all_ready : selected + (all_ready - ready);
    const double all_selected = std::max(selected, all_backward) + select(others);
    const double end = std::max(selected + exchange(elements), all_selected) + exchange(others);
    if (end < earliest) {
      earliest = end;
      units = {boundary, count - boundary};
    }
  }
  return units;
}

std::vector<std::size_t> CupcakeUnitsByCount(std::size_t tensors) {
  if (tensors == 1) return {1};
  return {tensors / 2, tensors - tensors / 2};
}

}  // namespace sparfuse::baselines
