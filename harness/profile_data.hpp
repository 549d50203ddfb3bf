// What a profile measured, as the model and the planners take it. harness/README.md says what the
// "profile" of an outcome holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/fusion/layout.hpp"
#include "harness/composition.hpp"

namespace sparfuse {

// The tensors whose backward pass was measured, in ready order.
std::vector<TensorShape> TensorsOf(const nlohmann::json& profile);

// Throws Error{kData} naming the first tensor that differs from the layout's.
BackwardProfile BackwardOf(const nlohmann::json& profile, const GradientLayout& layout);

// Everything but links. Densities, sparsifiers and quantizers are those that were measured; where
// tensors of one size and unlike shapes were, their mean counts.
CostModel KernelCosts(const nlohmann::json& profile);

// Adds the link between the profile's ranks, which must be more than one, for every class of links.
void AddLink(CostModel& cost, const nlohmann::json& profile);

// Of a declared cluster: start-up time and seconds a byte for each class of links.
void AddDeclaredLinks(CostModel& cost, const nlohmann::json& profile);

// What a selection is measured on: a shape, or {} for a range of the flat gradient.
struct TimedShape {
  std::size_t numel = 0;
  std::vector<std::int64_t> shape;
  bool operator==(const TimedShape&) const = default;
};

// Ascending: the layout's own tensors, the smallest and the largest among them, at most 16 spread
// evenly over the distinct ones; then what is larger, up to the whole gradient, as fused buffers
// are.
std::vector<TimedShape> ShapesToTime(const GradientLayout& layout);

}  // namespace sparfuse
