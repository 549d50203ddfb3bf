// Decides where Cupcake cuts a model in two, or whether not at all (as early as hides the first
// part's message, and as late as leaves little of the second), and plans by that search, with times
// of a profile, or by Cupcake's count of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

// Where units are selected from.
enum class CupcakeSelection : std::uint8_t {
  kBesideBackward,  // on a lane of their own, as in the published code
  kWithinBackward,  // on the lane of backward, which waits
};

// [units] how many tensors each unit has, in ready order: one or two numbers, which add up to the
// tensors given. Units are selected from and sent in turn, each sent when it is selected and the
// one before has been sent.
//
// Of one unit and every boundary between two it takes what is through earliest: everything sent,
// all gradients there. With selections within backward this is the least F of the paper, the sum of
// selections and of the communication that is not hidden. One unit where two are no earlier; the
// first of equal boundaries. Decompression, which follows, is not counted.
//
// The paper finds a boundary by bisection, since it measures F in iterations; that may end up to
// 6.5 % above the least. From times that are given every boundary can be tried.
//
// Source: Wang et al., Cupcake, MLSys 2023. Pure; linear in tensors. Throws Error{kConfig} as
// CheckReadyTensors.
std::vector<std::size_t> CupcakeUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                      const SecondsOfElements& exchange,
                                      CupcakeSelection selection);

// As shipped: half of the tensors, rounded down, and the others; one unit of a single tensor.
// Precondition: tensors >= 1.
std::vector<std::size_t> CupcakeUnitsByCount(std::size_t tensors);

// One or two units, selected from on the side lane, or the compute lane if told so. Selections and
// exchanges of their sizes are the profile's, on that lane.
extern const PlannerDescriptor kCupcakePlanner;

}  // namespace sparfuse::baselines
