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
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/quantize/quantizer.hpp"
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
  Options sending;       // of SendingOptions()
  PayloadCoding coding;  // of what has indices
  double density = 1.0;
  int threshold_period = 1;
  Feedback feedback;

  std::unique_ptr<Strategy> MakeStrategy() const { return strategy->make(strategy_options); }
  std::unique_ptr<Sparsifier> MakeSparsifier(std::uint64_t seed) const;  // null: none
  // What codes tensors of density 1; null: they have indices like others.
  std::unique_ptr<Quantizer> MakeRuns(std::uint64_t seed) const;
  bool needs_profile() const;  // to plan
};

// Throws Error{kConfig} naming what does not exist or does not fit, among them tensors kept dense
// or without feedback with a strategy that selects from fused buffers.
Composition Compose(const nlohmann::json& config);

// Tensors in ready order, those of config.dense_tensors and config.no_feedback_tensors marked: by
// name, or by a regular expression that is found in theirs. Throws Error{kConfig} when one fits no
// tensor.
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const nlohmann::json& config);

Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost);

}  // namespace sparfuse
