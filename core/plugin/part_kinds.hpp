// Names the kinds of parts, and sets for all of them at once how outside parts are found.
#pragma once

#include <map>
#include <string>
#include <type_traits>

#include "core/base/outside_parts.hpp"
#include "core/plugin/plugin.hpp"

namespace sparfuse {

template <class Descriptor>
inline constexpr const char* kKindOf =
    std::is_same_v<Descriptor, StrategyDescriptor>     ? "strategy"
    : std::is_same_v<Descriptor, PlannerDescriptor>    ? "planner"
    : std::is_same_v<Descriptor, SparsifierDescriptor> ? "sparsifier"
    : std::is_same_v<Descriptor, CollectiveDescriptor> ? "collective"
    : std::is_same_v<Descriptor, FeedbackDescriptor>   ? "feedback"
    : std::is_same_v<Descriptor, QuantizerDescriptor>  ? "quantizer"
                                                       : nullptr;

// The part that was found under `key`, or what `find` returns, which lives as long as the program.
// A caller excludes others until it returns.
template <class Descriptor, class Key, class Find>
const Descriptor& FindOnce(const Key& key, const Find& find) {
  static std::map<Key, const Descriptor*> found;
  if (const auto known = found.find(key); known != found.end()) return *known->second;
  const Descriptor& part = find();
  found[key] = &part;
  return part;
}

// Find::Part<Descriptor>(name) finds a part from outside, of every kind but sparsifiers. Callers
// that have a sparsifier's name look it up themselves.
template <class Find>
void FindPartsBy() {
  const auto set = []<class... Descriptors>() {
    (OutsideParts<Descriptors>::SetFinder(&Find::template Part<Descriptors>), ...);
  };
  set.template operator()<StrategyDescriptor, PlannerDescriptor, CollectiveDescriptor,
                          FeedbackDescriptor, QuantizerDescriptor>();
}

}  // namespace sparfuse
