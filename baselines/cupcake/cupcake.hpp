// Decides whether and where Cupcake cuts a model in two: early enough to hide the first part's
// message, late enough to leave a short second one. Plans by that search, with times of a profile,
// or by Cupcake's count of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

// The place of the units' selections.
enum class CupcakeSelection : std::uint8_t {
  kBesideBackward,  // on a lane of their own, as in the published code
  kWithinBackward,  // on the lane of backward, which waits
};

// [units] how many tensors each unit has, in ready order: one or two numbers, which add up to the
// number of tensors. Selections run in turn; a unit is sent when it is selected and the unit before
// has been sent.
//
// The search compares one unit with every boundary between two units. It takes the one that ends
// earliest, when all units are sent and all gradients are ready. With selections within backward
// this is the least F of the paper: the sum of selections and of communication that is not hidden.
// One unit is taken if two end no earlier; of equal boundaries, the first. Decompression, which
// follows, is not counted.
//
// The paper measures F in iterations and so finds a boundary by bisection, which may end up to
// 6.5 % above the least F. With given times, every boundary can be tried.
//
// Source: Wang et al., Cupcake, MLSys 2023. Pure; linear in tensors. Throws Error{kConfig} as
// CheckReadyTensors.
std::vector<std::size_t> CupcakeUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                      const SecondsOfElements& exchange,
                                      CupcakeSelection selection);

// As shipped: half of the tensors, rounded down, and the rest; one unit if there is one tensor.
// Precondition: tensors >= 1.
std::vector<std::size_t> CupcakeUnitsByCount(std::size_t tensors);

// Plans one or two units, selected on the side lane, or on the compute lane if an option says so.
// The times of selections and exchanges come from the profile, for that lane.
extern const PlannerDescriptor kCupcakePlanner;

}  // namespace sparfuse::baselines
