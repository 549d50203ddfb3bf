// Turns the measurements of a profile into the input of the model and the planners, and draws them
// again within their errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/fusion/layout.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// The tensors whose backward pass was measured, in ready order.
std::vector<TensorShape> TensorsOf(const Profile& profile);

// Throws Error{kData} naming the first tensor that differs from the layout's.
BackwardProfile BackwardOf(const Profile& profile, const GradientLayout& layout);

// Everything except links. Throws Error{kData} naming the missing part of the profile. Densities,
// sparsifiers and quantizers are the measured ones. If tensors of one size and different shapes
// were measured, their mean counts.
CostModel KernelCosts(const Profile& profile);

// The substitutes that KernelCosts takes for work that the profile lacks, in words.
std::vector<std::string> AssumedWork(const Profile& profile, PayloadCoding coding = {});

// Adds the link between the profile's ranks, which must be more than one, for every class of links.
// If the profile has the links within a node separately, these are left out.
void AddLink(CostModel& cost, const Profile& profile);

// For a declared cluster: start-up time and seconds a byte for each class of links.
void AddDeclaredLinks(CostModel& cost, const Profile& profile);

// The tensor of a measured selection: a shape, or {} for a range of the flat gradient.
struct TimedShape {
  std::size_t numel = 0;
  std::vector<std::int64_t> shape;
  bool operator==(const TimedShape&) const = default;
};

// Ascending. First the layout's own tensors: the smallest, the largest, and at most 16 in all,
// spread evenly over the distinct ones. Then larger shapes, like fused buffers, up to the whole
// gradient or `elements`, if that is more.
std::vector<TimedShape> ShapesToTime(const GradientLayout& layout, std::size_t elements = 0);

// The profile as another measurement might have found it. Every value, curve and point with an
// entry in "relative_errors" is multiplied by 1 + e z, at least 0; e is its relative standard
// error, and z is normal with mean 0 and deviation 1. The tensors' times and the tail are then
// scaled to the new total of backward, which is known better than they are. Values without an entry
// stay. Equal seeds give equal profiles, on every machine with the same math library. Draws with
// different seeds are independent.
//
// A cell that is modelled with the profiles of several seeds shows the effect of errors of
// measurement on its prediction. These are the errors within one trial; differences from launch to
// launch are not included. Throws Error{kData} naming an entry that fits nothing.
Profile Perturbed(const Profile& profile, std::uint64_t seed);

// Whether any of them says how well it is known.
bool KnowsErrors(const ProfileOutcomes& outcomes);

// Outcomes of profile trials, the input of a modelled trial, with each one's "profile" perturbed
// independently.
ProfileOutcomes PerturbedOutcomes(const ProfileOutcomes& outcomes, std::uint64_t seed);

}  // namespace sparfuse::harness
