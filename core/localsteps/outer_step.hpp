// The arithmetic of local steps on one element, the same on the host and on a device.
#pragma once

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

// Applies the outer rule (OuterRule). average: over ranks; with kElastic the sum. elastic: the
// value that this rank sent, with kElastic alone.
SPARFUSE_HOST_DEVICE void StepElement(const LocalSteps& steps, float average, float elastic,
                                      OuterElement& of) {
  switch (steps.outer) {
    case OuterRule::kAverage:
      of.anchor = average;
      break;
    case OuterRule::kSgd:
      of.anchor = of.anchor - steps.rate * average;
      break;
    case OuterRule::kMomentum:
      of.outer = steps.momentum * of.outer + average;
      of.anchor = of.anchor - steps.rate * of.outer;
      break;
    case OuterRule::kNesterov:
      of.outer = steps.momentum * of.outer + average;
      of.anchor = of.anchor - steps.rate * (average + steps.momentum * of.outer);
      break;
    case OuterRule::kElastic:
      of.parameter = of.parameter - steps.rate * elastic;
      of.anchor = of.anchor + steps.rate * average;
      return;
  }
  if (steps.mix == 0) {
    of.parameter = of.anchor;
  } else if (steps.mix != 1) {
    of.parameter = of.anchor + steps.mix * (of.parameter - of.anchor);
  }
}

}  // namespace sparfuse
