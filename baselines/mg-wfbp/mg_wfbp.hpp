// Decides which gradients MG-WFBP merges: those for which waiting costs less than the start-up time
// of the message that is saved. Plans by this rule, with times of a profile.
#pragma once

#include <cstddef>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

// An all-reduce of M bytes takes alpha_seconds + seconds_per_byte * M. Both are at least 0.
struct AllReduceCost {
  double alpha_seconds = 0;
  double seconds_per_byte = 0;

  double Seconds(std::size_t elements) const {
    return alpha_seconds + seconds_per_byte * (sizeof(float) * static_cast<double>(elements));
  }
};

// [units] how many tensors each unit has, in ready order; they add up to the number of tensors. One
// all-reduce runs at a time; each begins when its unit is ready and the previous one has ended.
//
// In ready order, a unit whose all-reduce would begin at c takes the next gradient, ready at r, if
// r is before the end of that all-reduce. In addition, the gradient must be ready already (r < c),
// or the wait for it must be below alpha_seconds (r - c < alpha_seconds).
//
// Each merge lets its last gradient be summed earlier, so that the last all-reduce never ends later
// than with a unit for each tensor. This partition ends earliest of all, as the paper says, if
// there are two tensors, or if all gradients after the first are ready within alpha_seconds.
// Otherwise the waits of one unit may add up to more than the one alpha saved: the earliest
// partition of the synthetic model of the tests ends 22 % before this one.
//
// Source: Shi, Chu and Li, MG-WFBP, INFOCOM 2019. Pure; linear in tensors. Throws Error{kConfig} as
// CheckReadyTensors, and naming a constant that is negative or not finite.
std::vector<std::size_t> MgWfbpUnits(const ReadyTensors& tensors, const AllReduceCost& cost);

// The start-up time and the time of a byte are fitted to the profile's exchanges of the sizes that
// the published code would measure, 32 KiB to 2016 KiB in 63 steps. If the strategy sends payloads,
// an exchange is the all-gather of the elements kept from that size.
extern const PlannerDescriptor kMgWfbpPlanner;

}  // namespace sparfuse::baselines
