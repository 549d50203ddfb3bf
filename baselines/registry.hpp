// Lists the parts of which a method can be composed, and the methods themselves.
#pragma once

#include <span>
#include <string_view>

#include "core/collective/collective.hpp"
#include "core/engine/engine.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// A method's NAME.toml, embedded when the project is built. `path` is its path in the tree.
struct EmbeddedMethod {
  std::string_view path;
  std::string_view toml;
};

// In the order in which `sparfuse list methods` prints them. A new baseline is a
// NAME.toml; one that brings a strategy, a planner or a collective of its own adds one line to
// registry.cpp.
std::span<const EmbeddedMethod> MethodFiles();

// The parts of core and of every baseline.
std::span<const StrategyDescriptor> Strategies();
std::span<const PlannerDescriptor> Planners();
std::span<const CollectiveDescriptor> Collectives();

// These find parts from outside, too (core/base/outside_parts.hpp). They throw Error{kConfig}
// naming the nearest known name.
const StrategyDescriptor& FindStrategy(std::string_view name);
const PlannerDescriptor& FindPlanner(std::string_view name);
const CollectiveDescriptor& FindCollective(std::string_view name);

}  // namespace sparfuse
