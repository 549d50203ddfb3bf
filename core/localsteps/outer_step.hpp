// The arithmetic of local steps on one element, the same on the host and on a device.
#pragma once

#include <cmath>

#include "core/device/kernel.hpp"
#include "core/localsteps/local_steps.hpp"

namespace sparfuse {

// An element that the outer rule moves.
struct OuterElement {
  float anchor = 0;
  float outer = 0;  // the outer state, of rules that have one
  float parameter = 0;
};

SPARFUSE_HOST_DEVICE float PackedElement(PackSource source, float anchor, float parameter) {
  if (source == PackSource::kParameters) return parameter;
  return source == PackSource::kDifference ? anchor - parameter : parameter - anchor;
}

// The parts of kMomentum's rule, and the step that ends every rule but kElastic's.
SPARFUSE_HOST_DEVICE float GrownMomentum(const LocalSteps& steps, float average, float outer) {
  if (steps.penalty != 1) average = average / steps.penalty;
  return steps.momentum * outer + average;
}
SPARFUSE_HOST_DEVICE void MixParameter(const LocalSteps& steps, OuterElement& of) {
  if (steps.mix == 0) {
    of.parameter = of.anchor;
  } else if (steps.mix != 1) {
    of.parameter = of.anchor + steps.mix * (of.parameter - of.anchor);
  }
}
// What outer_clip scales the outer state with. squares: the sum of its squares.
SPARFUSE_HOST_DEVICE float OuterClipFactor(const LocalSteps& steps, double squares) {
  const double norm = std::sqrt(squares);
  const double most = steps.outer_clip;
  return norm > most ? static_cast<float>(most / norm) : 1.0f;
}
SPARFUSE_HOST_DEVICE void MoveByMomentum(const LocalSteps& steps, OuterElement& of) {
  of.anchor = of.anchor - steps.rate * of.outer;
  MixParameter(steps, of);
}

// Applies the outer rule (OuterRule). average: over ranks; with kElastic the sum. elastic: the
// value that this rank sent, with kElastic alone.
SPARFUSE_HOST_DEVICE void StepElement(const LocalSteps& steps, float average, float elastic,
                                      OuterElement& of) {
  switch (steps.outer) {
    case OuterRule::kAverage:
      of.anchor = average;
      return MixParameter(steps, of);
    case OuterRule::kSgd:
      if (steps.penalty != 1) average = average / steps.penalty;
      of.anchor = of.anchor - steps.rate * average;
      return MixParameter(steps, of);
    case OuterRule::kMomentum:
      of.outer = GrownMomentum(steps, average, of.outer);
      return MoveByMomentum(steps, of);
    case OuterRule::kNesterov:
      if (steps.penalty != 1) average = average / steps.penalty;
      of.outer = steps.momentum * of.outer + average;
      of.anchor = of.anchor - steps.rate * (average + steps.momentum * of.outer);
      return MixParameter(steps, of);
    case OuterRule::kElastic:
      of.parameter = of.parameter - steps.rate * elastic;
      of.anchor = of.anchor + steps.rate * average;
      return;
  }
}

}  // namespace sparfuse
