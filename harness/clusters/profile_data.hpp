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

// Everything but links. Throws Error{kData} naming what the profile lacks. Densities, sparsifiers
// and quantizers are those that were measured; where tensors of one size and unlike shapes were,
// their mean counts.
CostModel KernelCosts(const Profile& profile);

// What KernelCosts takes in the place of work that the profile lacks, in words.
std::vector<std::string> AssumedWork(const Profile& profile, PayloadCoding coding = {});

// Adds the link between the profile's ranks, which must be more than one: for every class of links,
// but for those within a node where the profile has these apart.
void AddLink(CostModel& cost, const Profile& profile);

// Of a declared cluster: start-up time and seconds a byte for each class of links.
void AddDeclaredLinks(CostModel& cost, const Profile& profile);

// What a selection is measured on: a shape, or {} for a range of the flat gradient.
struct TimedShape {
  std::size_t numel = 0;
  std::vector<std::int64_t> shape;
  bool operator==(const TimedShape&) const = default;
};

// Ascending: the layout's own tensors, the smallest and the largest among them, at most 16 spread
// evenly over the distinct ones; then what is larger, as fused buffers are, up to the whole
// gradient or `elements`, whichever is more.
std::vector<TimedShape> ShapesToTime(const GradientLayout& layout, std::size_t elements = 0);

// The profile as another measurement might have found it: every value, curve and point with an
// entry in "relative_errors" times 1 + e z, at least 0, where e is its relative standard error and
// z normal with mean 0 and deviation 1. The tensors' times and the tail are then scaled to the new
// total of backward, which is known better than they are. What has no entry stays. Equal seeds give
// equal profiles, on every machine with the same math library; draws of unlike seeds are
// independent.
//
// Modelling a cell with the profiles of several seeds shows what errors of measurement make of its
// prediction. They are those within one trial: what differs from launch to launch is not in them.
// Throws Error{kData} naming the entry that fits nothing.
Profile Perturbed(const Profile& profile, std::uint64_t seed);

// Whether any of them says how well it is known.
bool KnowsErrors(const ProfileOutcomes& outcomes);

// Outcomes of profile trials (what a modelled trial takes), each one's "profile" perturbed on its
// own.
ProfileOutcomes PerturbedOutcomes(const ProfileOutcomes& outcomes, std::uint64_t seed);

}  // namespace sparfuse::harness
