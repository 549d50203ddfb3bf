// Finds parts in plugins (core/plugin/plugin.hpp): shared libraries from outside the tree.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include "core/plugin/plugin.hpp"

namespace sparfuse {

// Throws Error{kConfig} if a file is no plugin, or was built against other headers or by another
// compiler, naming the hashes of both sides. Reads the file and runs none of its code.
void CheckPluginAbi(const std::filesystem::path& file);

// Opens the plugin, once; it stays open until the program ends. Throws as CheckPluginAbi does, and
// Error{kConfig} if one of its parts has the name of a built-in part or of another plugin's part.
const PluginParts& OpenPlugin(const std::filesystem::path& file);

template <class Descriptor>
std::span<const Descriptor> PartsOfKind(const PluginParts& parts) {
  if constexpr (std::is_same_v<Descriptor, StrategyDescriptor>) return parts.strategies;
  if constexpr (std::is_same_v<Descriptor, PlannerDescriptor>) return parts.planners;
  if constexpr (std::is_same_v<Descriptor, SparsifierDescriptor>) return parts.sparsifiers;
  if constexpr (std::is_same_v<Descriptor, CollectiveDescriptor>) return parts.collectives;
  if constexpr (std::is_same_v<Descriptor, FeedbackDescriptor>) return parts.feedback;
  if constexpr (std::is_same_v<Descriptor, QuantizerDescriptor>) return parts.quantizers;
}

// The part that the plugin calls `part`. The returned descriptor has `name`, the key of results,
// and lives as long as the program. Throws Error{kConfig} naming the plugin's nearest part.
// Descriptor: of one of the kinds of PluginParts.
template <class Descriptor>
const Descriptor& FindInPlugin(const std::filesystem::path& file, const std::string& part,
                               const std::string& name);

}  // namespace sparfuse
