// Configures registered methods over some tensors, and runs them live over ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/records/record.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::harness {

inline std::vector<TensorShape> Tensors() {
  std::vector<TensorShape> tensors;
  for (const std::size_t n : testing::kTensorSizes) {
    tensors.push_back(
        {"tensor" + std::to_string(tensors.size()), {static_cast<std::int64_t>(n)}, n});
  }
  return tensors;
}

inline const nlohmann::json kPlain = {{"payload_values", "f32"}, {"payload_indices", "u32"}};
inline const nlohmann::json kGaps = {{"payload_values", "f32"}, {"payload_indices", "delta"}};
inline const nlohmann::json kCoded = {{"payload_values", "f16"}, {"payload_indices", "delta"}};

inline const Catalog& TheCatalog() {
  static const Catalog kCatalog = BuiltInCatalog();
  return kCatalog;
}

// The variable that names the method file, outside the tree, that `sparfuse check` tests instead of
// the registered methods. There is no such file if the environment does not set it.
inline constexpr const char* kMethodFile = "SPARFUSE_CHECKED_METHOD";
inline const Method* MethodOfFile() {
  static const std::optional<Method> kMethod = []() -> std::optional<Method> {
    const char* const file = std::getenv(kMethodFile);
    if (file == nullptr) return {};
    testing::LongestWait() =
        std::chrono::seconds(10);  // a part in it may wait for ever, in each test
    ::testing::GTEST_FLAG(fail_fast) = true;
    Catalog catalog = TheCatalog();
    AddPluginsOfEnvironment(catalog);
    return ReadOutsideMethod(catalog, file).method;
  }();
  return kMethod ? &*kMethod : nullptr;
}

inline CellConfig ConfigOf(const Method& method, const std::string& sparsifier = "",
                           nlohmann::json options = nlohmann::json::object()) {
  nlohmann::json given = OptionsToJson(method.conformance_options);
  given.update(options);
  CellConfig config;
  config.method_options = ResolveMethodOptions(TheCatalog(), method, given);
  if (!method.dense()) {
    config.sparsifier = sparsifier.empty() ? method.sparsifier : sparsifier;
    // A method's file has the path of a part's file, a cell the hash of its content.
    if (IsOutsidePart(config.sparsifier))
      config.sparsifier = OutsidePartName("sparsifier", config.sparsifier, "/");
    config.density = 0.05;
  }
  config.feedback = method.sends_payloads() ? "residual" : "none";
  return config;
}

inline CollectiveTraits TraitsOf(const CellConfig& config) {
  return Compose(config).sparse_collective->traits();
}

// The method's own sparsifier, or one whose counts are known beforehand: a part of somebody's own
// says its counts when it runs.
inline std::string ExactSparsifier(const Method& method) {
  if (method.dense()) return method.sparsifier;
  const bool exact =
      !IsOutsidePart(method.sparsifier) && FindSparsifier(method.sparsifier).exact_count;
  return exact ? method.sparsifier : "topk";
}

// With dense_fallback, selecting from a large tensor takes longer than it saves.
inline CostModel CostOf(const CellConfig& config) {
  CostModel cost = testing::EvenCost();
  if (!BoolOption(config.method_options.sending, "dense_fallback")) return cost;
  for (auto& [name, seconds] : cost.selection) {
    seconds.Add(0.01, PiecewiseLinear({{0, 1e-6}, {4000, 1e-6}, {4001, 1}}));
  }
  return cost;
}

inline std::vector<testing::RankResult> RunLive(const CellConfig& config, const Topology& topology,
                                                const testing::Gradients& gradient_of,
                                                std::size_t without_gradient = 999,
                                                Device device = {}) {
  const auto configure = [&] {
    const Composition composition = Compose(config);
    GradientLayout layout = MakeLayout(Tensors(), config);
    const BackwardProfile backward = testing::EvenBackward(testing::kTensorSizes.size());
    const CostModel cost = CostOf(config);
    Plan plan = MakePlan(composition, layout, topology, &backward, &cost);
    LiveConfig live = MakeLiveConfig(composition, std::move(layout), std::move(plan), topology, 7);
    live.deadline = testing::kLiveDeadline;
    live.device = device;
    return live;
  };
  return testing::RunLive(configure, topology.ranks, gradient_of, without_gradient);
}

// A method file may code its payloads; such a method must pass the tests of the registered ones.
inline constexpr const char* kInHalves = "wfbp-in-halves";

inline Method MethodOf(const std::string& name) {
  if (name == kInHalves) {
    Method method = MethodOf("wfbp");
    method.sending["payload_values"] = std::string("f16");
    return method;
  }
  if (const Method* method = MethodOfFile()) return *method;
  for (const Method& method : TheCatalog().methods) {
    if (method.name == name) return method;
  }
  throw std::runtime_error("no such method");
}

// Integers up to 99,700. Halves round most of them and saturate at the largest, but the halves are
// integers again, so that sums stay exact.
inline std::vector<float> WideGradient(int rank, int step, std::size_t tensor) {
  auto gradient = testing::IntegerGradient(rank, step, tensor);
  for (float& value : gradient) value *= 997;
  return gradient;
}

// Like testing::LostMass, which expects integer gradients: these are 997 times as large.
inline std::vector<double> LostWideMass(const std::vector<testing::RankResult>& results) {
  std::vector<double> lost = testing::LostMass(results);
  for (int step = 0; step < testing::kLiveSteps; ++step) {
    for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
      std::size_t i = 0;
      for (std::size_t t = 0; t < testing::kTensorSizes.size(); ++t) {
        for (const float value : testing::IntegerGradient(rank, step, t))
          lost[i++] -= 996.0 * value;
      }
    }
  }
  return lost;
}

}  // namespace sparfuse::harness
