// From a cell's configuration to the parts that run it; used by live and modelled trials alike.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/collective/payload_coding.hpp"
#include "core/cost/cost_model.hpp"
#include "core/engine/engine.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
};

// The parts of a method as a config.json composes them. All members are set but `sparsifier` of a
// dense method.
struct Composition {
  const StrategyDescriptor* strategy = nullptr;
  Options strategy_options;
  const PlannerDescriptor* planner = nullptr;
  Options planner_options;
  const SparsifierDescriptor* sparsifier = nullptr;  // null: nothing is sparsified
  Options sparsifier_options;
  const Collective* dense_collective = nullptr;
  const Collective* sparse_collective = nullptr;
  PayloadCoding coding;  // of sparse payloads
  double density = 1.0;
  bool error_feedback = false;

  std::unique_ptr<Strategy> MakeStrategy() const { return strategy->make(strategy_options); }
};

// Throws Error{kConfig} naming what does not exist or does not fit, among them tensors kept dense
// with a strategy that selects from fused buffers.
Composition Compose(const nlohmann::json& config);

// Tensors in ready order, those named by config.dense_tensors marked. Throws Error{kConfig} when a
// name fits no tensor.
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const nlohmann::json& config);

Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost);

}  // namespace sparfuse
