// Plans the option dense_fallback: units that take longer sparse than dense are left dense.
#pragma once

#include "core/coding/payload_coding.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

class Quantizer;
class Sparsifier;

// The form in which a rank sends what it selects.
struct PayloadForm {
  const Sparsifier* sparsifier = nullptr;      // says how many elements are kept; null: KeptCount
  PayloadCoding coding = {};                   // of what has indices
  const Quantizer* dense_quantizer = nullptr;  // of whole tensors; null: they have indices
};

// Seconds from the begin of backward until the last unit is averaged, by the profile of `input`:
// local work in turn on the compute lane, but for units on the side lane, each exchange once its
// tensors are ready and the exchange before it is over, averages after backward in that order. What
// UnitStrategy takes in the ModelEngine where no core is shared and counts are as planned. Throws
// Error{kConfig} where the profile lacks something.
double PredictedSeconds(const Plan& plan, const PlanInput& input, const PayloadForm& form);

// The plan with the units left unsparsified (Sparsified::kNever, density 1) for which
// PredictedSeconds is least among all sets that were tried: none, all, those whose own parts add up
// to less, and from the best of these one unit more or less at a time until nothing gains. So the
// prediction is never above that of the same units all dense, nor above that of `plan`, which stays
// where nothing is less. What a residual holds of a unit that became dense waits until it is
// sparsified again.
//
// Pure. Cost: O(units^2) a round, a few rounds. Throws as PredictedSeconds.
Plan WithDenseFallback(Plan plan, const PlanInput& input, const PayloadForm& form);

}  // namespace sparfuse
