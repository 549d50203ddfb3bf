// Plans the option dense_fallback: units that take longer sparse than dense are left dense.
#pragma once

#include "core/coding/payload_coding.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

class Quantizer;
class Sparsifier;

// The form in which a rank sends its selection.
struct PayloadForm {
  const Sparsifier* sparsifier = nullptr;      // says how many elements are kept; null: KeptCount
  PayloadCoding coding = {};                   // of index/value payloads
  const Quantizer* dense_quantizer = nullptr;  // of whole tensors; null: they have indices
};

// Seconds from the begin of backward until the last unit is averaged, by the profile of `input`.
// Local work runs in turn on the compute lane, except for units on the side lane. An exchange
// begins when its tensors are ready and the exchange before it is over. Averages follow backward,
// in the order of exchanges. UnitStrategy takes the same time in the ModelEngine if no core is
// shared and counts are as planned. Throws Error{kConfig} if the profile lacks a part.
double PredictedSeconds(const Plan& plan, const PlanInput& input, const PayloadForm& form);

// Leaves those units unsparsified (Sparsified::kNever, density 1) that make PredictedSeconds least.
// The sets tried are: no unit, all units, and the units whose own times are less dense than sparse.
// From the best of these, one unit is added or removed at a time until no change gains. The result
// is therefore predicted no slower than the same units all dense, nor than `plan`, which is
// returned if no set is faster. The residual of a unit that became dense waits until the unit is
// sparsified again.
//
// Pure. Cost: O(units^2) a round, a few rounds. Throws as PredictedSeconds.
Plan WithDenseFallback(Plan plan, const PlanInput& input, const PayloadForm& form);

}  // namespace sparfuse
