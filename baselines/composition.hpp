// Makes the parts of a method from their names and options, for everything that runs methods, live
// and modelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/coding/payload_coding.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/cost/cost_model.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// What a method that sends payloads takes beside the options of its parts: how payloads are coded,
// how often thresholds are estimated and plans made, and which units and steps may be sent dense.
std::span<const OptionSpec> SendingOptions();

// The options that a method takes, its parts' together.
struct MethodOptions {
  std::span<const OptionSpec> strategy, planner, collective, sending;

  enum class Owner : std::uint8_t { kStrategy, kPlanner, kCollective, kSending };
  // Whose option a key is; nothing where it is nobody's. Throws Error{kConfig} naming `method`
  // where two of its parts take it.
  std::optional<Owner> OwnerOf(std::string_view key, std::string_view method) const;
  std::vector<std::string> Names() const;
};

// What a method is composed of, by names. Compose completes options and checks them, but for those
// of the sparsifier, which are resolved: not every sparsifier says what it takes.
struct MethodParts {
  std::string strategy, planner, collective;
  Options strategy_options, planner_options, collective_options;
  Options sending;                                   // of SendingOptions()
  const SparsifierDescriptor* sparsifier = nullptr;  // null: nothing is sparsified
  Options sparsifier_options;
  double density = 1.0;  // without a sparsifier it stays 1
  std::string feedback = "none";
  Options feedback_options;
};

struct Composition {
  const StrategyDescriptor* strategy = nullptr;
  Options strategy_options;
  const PlannerDescriptor* planner = nullptr;
  Options planner_options;
  const SparsifierDescriptor* sparsifier = nullptr;  // null: nothing is sparsified
  Options sparsifier_options;
  // Also those of engines that were made of it.
  std::shared_ptr<const Collective> dense_collective;
  std::shared_ptr<const Collective> sparse_collective;
  Options collective_options;
  Options sending;       // of SendingOptions()
  PayloadCoding coding;  // of what has indices
  double density = 1.0;
  int threshold_period = 1;
  // The first steps, in which units are sent dense: by DensePlan of the plan of those that follow.
  std::uint64_t dense_warmup_steps = 0;
  Feedback feedback;

  std::unique_ptr<Strategy> MakeStrategy() const { return strategy->make(strategy_options); }
  std::unique_ptr<Sparsifier> MakeSparsifier(std::uint64_t seed) const;  // null: none
  // Encodes whole (unsparsified) tensors. Null: they are sent as index/value pairs.
  std::unique_ptr<Quantizer> MakeDenseQuantizer(std::uint64_t seed) const;
  bool needs_profile() const;  // to plan
  std::optional<LocalSteps> local_steps() const;
};

// Throws Error{kConfig} naming what does not exist or does not fit.
Composition Compose(const MethodParts& parts);

// Throws Error{kConfig} where the collective cannot run on these ranks: a number of them that it
// does not take.
void CheckTopology(const Composition& composition, const Topology& topology);

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
};

// The tensors that an experiment treats apart. A name means the tensor of that name, or those in
// which it is found as a regular expression.
struct TensorChoice {
  std::size_t max_ndim = 0;                   // those of so many dimensions or fewer are dense
  std::vector<std::string> dense;             // never sparsified
  std::vector<std::string> without_feedback;  // what is not sent of them is lost
  // Dense ones lie behind the others: for strategies that select from fused buffers.
  bool dense_apart = false;
};

// Tensors in ready order, the chosen ones marked. Throws Error{kConfig} where a name fits no tensor
// of `whose` ("workload digits-mlp").
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const TensorChoice& choice,
                          const std::string& whose);

// Throws Error{kConfig} for tensors without feedback and a strategy that selects from fused
// buffers, from which all takes part.
Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost);

// A rank's engine but for its deadline. Equal on all ranks.
LiveConfig MakeLiveConfig(const Composition& composition, GradientLayout layout, Plan plan,
                          const Topology& topology, std::uint64_t seed);

// A modelled step of these costs, planned with them; every lane has a core of its own.
ModelConfig MakeModelConfig(const Composition& composition, GradientLayout layout,
                            const Topology& topology, BackwardProfile backward, CostModel cost,
                            std::uint64_t seed);

// Throws Error{kConfig} naming the part or option that does not fit, and what was expected.
// `collective`: the one that the method names, of the two that `made` has.
void CheckParts(const Composition& made, const CollectiveDescriptor& collective);

}  // namespace sparfuse
