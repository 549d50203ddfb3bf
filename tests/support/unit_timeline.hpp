// Computes when the units of a model with given times are sent, as the solvers of published
// planners assume, in an independent implementation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/fusion/plan_times.hpp"
#include "tests/support/timed_tensors.hpp"

namespace sparfuse::testing {

struct UnitTimeline {
  double end = 0;         // of the last exchange, counted from the begin of backward
  double selections = 0;  // seconds of all selections together
  double exchanges = 0;
};

// The lane on which units are selected.
enum class SelectionLane : std::uint8_t {
  kBackward,  // in line with backward, which waits
  kOwn,       // beside it
};

// Selections run one at a time, each when its unit's gradients are ready. Exchanges run one at a
// time, each when its unit is selected.
inline UnitTimeline TimelineOf(const TimedTensors& tensors, const Lengths& units,
                               const SecondsOfElements& select, const SecondsOfElements& exchange,
                               SelectionLane lane = SelectionLane::kBackward) {
  UnitTimeline timeline;
  double backward = 0;
  double selected = 0;
  std::size_t t = 0;
  for (const std::size_t length : units) {
    std::size_t elements = 0;
    for (std::size_t i = 0; i < length; ++i, ++t) {
      backward += tensors.backward_seconds[t];
      elements += tensors.elements[t];
    }
    selected = std::max(selected, backward) + select(elements);
    if (lane == SelectionLane::kBackward) backward = selected;
    timeline.end = std::max(timeline.end, selected) + exchange(elements);
    timeline.selections += select(elements);
    timeline.exchanges += exchange(elements);
  }
  return timeline;
}

}  // namespace sparfuse::testing
