// Declares the contents of a plugin: a shared library with parts of methods, built outside this
// tree against the installed headers. A plugin's source includes <sparfuse/plugin.hpp>, which is
// this file and the hash of the headers. The source defines descriptors, and ends with
//
//   SPARFUSE_PLUGIN(.planners = kPlanners)
#pragma once

#include <span>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/plugin/abi.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Each span refers to an array that lives as long as the library.
struct PluginParts {
  std::span<const StrategyDescriptor> strategies = {};
  std::span<const PlannerDescriptor> planners = {};
  std::span<const SparsifierDescriptor> sparsifiers = {};
  std::span<const CollectiveDescriptor> collectives = {};
  std::span<const FeedbackDescriptor> feedback = {};
  std::span<const QuantizerDescriptor> quantizers = {};
};

inline constexpr const char* kPluginFunction = "SparfusePluginParts";
using PluginFunction = const PluginParts*();

}  // namespace sparfuse

// Use it once in a plugin. The text in the section is read before any code of the library runs.
#define SPARFUSE_PLUGIN(...)                                                                       \
  namespace {                                                                                      \
  [[gnu::section(".sparfuse_abi"), gnu::used]] constexpr char kSparfuseAbiOfThisPlugin[] =         \
      SPARFUSE_ABI;                                                                                \
  }                                                                                                \
  extern "C" [[gnu::visibility("default")]] const ::sparfuse::PluginParts* SparfusePluginParts() { \
    static const ::sparfuse::PluginParts parts{__VA_ARGS__};                                       \
    return &parts;                                                                                 \
  }
