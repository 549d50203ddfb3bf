// Names the kinds of parts, and sets for all of them at once how outside parts are found.
#pragma once

#include <map>
#include <string>

#include "core/base/outside_parts.hpp"
#include "core/plugin/plugin.hpp"

namespace sparfuse {

template <class Descriptor>
inline constexpr const char* kKindOf = nullptr;
template <>
inline constexpr const char* kKindOf<StrategyDescriptor> = "strategy";
template <>
inline constexpr const char* kKindOf<PlannerDescriptor> = "planner";
template <>
inline constexpr const char* kKindOf<SparsifierDescriptor> = "sparsifier";
template <>
inline constexpr const char* kKindOf<CollectiveDescriptor> = "collective";
template <>
inline constexpr const char* kKindOf<FeedbackDescriptor> = "feedback";
template <>
inline constexpr const char* kKindOf<QuantizerDescriptor> = "quantizer";

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
  const auto set = []<class Descriptor>(const Descriptor*) {
    OutsideParts<Descriptor>::SetFinder([](const std::string& name) -> const Descriptor& {
      return Find::template Part<Descriptor>(name);
    });
  };
  set(static_cast<const StrategyDescriptor*>(nullptr));
  set(static_cast<const PlannerDescriptor*>(nullptr));
  set(static_cast<const CollectiveDescriptor*>(nullptr));
  set(static_cast<const FeedbackDescriptor*>(nullptr));
  set(static_cast<const QuantizerDescriptor*>(nullptr));
}

}  // namespace sparfuse
