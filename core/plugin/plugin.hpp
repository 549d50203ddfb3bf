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

// Describes the headers and the compiler in one line (SPARFUSE_ABI), on which both sides of a
// plugin must agree.
#define SPARFUSE_TEXT_OF(value) #value
#define SPARFUSE_TEXT(macro) SPARFUSE_TEXT_OF(macro)

#if defined(__clang__)
#define SPARFUSE_COMPILER "Clang " SPARFUSE_TEXT(__clang_major__)
#else
#define SPARFUSE_COMPILER "GCC " SPARFUSE_TEXT(__GNUC__)
#endif

#if defined(_LIBCPP_VERSION)
#define SPARFUSE_LIBRARY "libc++ " SPARFUSE_TEXT(_LIBCPP_VERSION)
#elif defined(_GLIBCXX_DEBUG)
#define SPARFUSE_LIBRARY "libstdc++ with debug containers"
#else
#define SPARFUSE_LIBRARY "libstdc++ strings " SPARFUSE_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif

#if defined(__aarch64__)
#define SPARFUSE_PROCESSOR "aarch64"
#elif defined(__x86_64__)
#define SPARFUSE_PROCESSOR "x86_64"
#else
#define SPARFUSE_PROCESSOR "another processor"
#endif

// A text literal. SPARFUSE_HEADERS_HASH, from a generated header, is the hash of the installed
// headers.
#define SPARFUSE_ABI                                                                      \
  "headers " SPARFUSE_HEADERS_HASH ", " SPARFUSE_COMPILER                                 \
  ", ABI " SPARFUSE_TEXT(__GXX_ABI_VERSION) ", " SPARFUSE_LIBRARY ", C++ " SPARFUSE_TEXT( \
      __cplusplus) ", " SPARFUSE_PROCESSOR

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
