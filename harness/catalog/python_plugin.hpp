// Declares the plugin, which embeds Python, so that only processes that run parts written in Python
// load it. Opened with RTLD_GLOBAL: NumPy's own libraries look for the interpreter among global
// symbols.
#pragma once

#include <cstdint>
#include <tuple>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/outside_part.hpp"

namespace sparfuse::harness {

// Makes a part of one kind from a class. The part lives as long as the program. Throws
// Error{kConfig} naming file, class and the expected form.
template <class Descriptor>
using MakePart = const Descriptor& (*)(PartSource source);
// The makers of every kind of part except sparsifiers.
using MakeParts = std::tuple<MakePart<PlannerDescriptor>, MakePart<StrategyDescriptor>,
                             MakePart<FeedbackDescriptor>, MakePart<CollectiveDescriptor>,
                             MakePart<QuantizerDescriptor>>;

// Each starts Python in this process, once, and throws as MakePart does.
struct PythonPlugin {
  // The caller owns the returned object. options: keywords of the constructor.
  Sparsifier* (*sparsifier)(const PartSource& source, const Options& options, std::uint64_t seed);
  MakeParts parts;
  void (*watch)(const PartWatch& watch);
  double (*seconds)();  // that this process has spent in calls of parts
};

inline constexpr const char* kPythonPlugin = "sparfuse_python_plugin.so";
inline constexpr const char* kPythonPluginFunction = "SparfusePythonPlugin";
extern "C" using PythonPluginFunction = const PythonPlugin * ();

}  // namespace sparfuse::harness
