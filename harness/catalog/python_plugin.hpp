// Declares the plugin, which embeds Python, so that only processes that run parts written in Python
// load it. Opened with RTLD_GLOBAL: NumPy's own libraries look for the interpreter among global
// symbols.
#pragma once

#include <cstdint>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/part_source.hpp"

namespace sparfuse::harness {

// Each starts Python in this process, once. They throw Error{kConfig} naming file, class and what
// was expected.
struct PythonPlugin {
  // The caller owns what is returned. options: keywords of the constructor.
  Sparsifier* (*sparsifier)(const PartSource& source, const Options& options, std::uint64_t seed);
  // These live as long as the program.
  const PlannerDescriptor* (*planner)(const PartSource& source);
  const StrategyDescriptor* (*strategy)(const PartSource& source);
  const FeedbackDescriptor* (*feedback)(const PartSource& source);
  const CollectiveDescriptor* (*collective)(const PartSource& source);
  const QuantizerDescriptor* (*quantizer)(const PartSource& source);
  double (*seconds)();  // that this process has spent in calls of parts
};

inline constexpr const char* kPythonPlugin = "sparfuse_python_plugin.so";
inline constexpr const char* kPythonPluginFunction = "SparfusePythonPlugin";
extern "C" using PythonPluginFunction = const PythonPlugin * ();

}  // namespace sparfuse::harness
