// Makes the parts of a method from their names and options, for live and modelled runs.
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

// The options of a method that sends payloads, beside those of its parts: the coding of payloads,
// the periods of threshold estimates and plans, and the units and steps that may be sent dense.
std::span<const OptionSpec> SendingOptions();

// All options that a method takes, by the part that owns them.
struct MethodOptions {
  std::span<const OptionSpec> strategy, planner, collective, sending;

  enum class Owner : std::uint8_t { kStrategy, kPlanner, kCollective, kSending };
  // The owner of an option; none if no part takes it. Throws Error{kConfig} naming `method` if two
  // of its parts take it.
  std::optional<Owner> OwnerOf(std::string_view key, std::string_view method) const;
  std::vector<std::string> Names() const;
};

// The parts of a method, by name. Compose completes and checks their options. Options of the
// sparsifier must be resolved already, because not every sparsifier declares its options.
struct MethodParts {
  std::string strategy, planner, collective;
  Options strategy_options, planner_options, collective_options;
  Options sending;                                   // of SendingOptions()
  const SparsifierDescriptor* sparsifier = nullptr;  // null: nothing is sparsified
  Options sparsifier_options;
  double density = 1.0;  // without a sparsifier it stays 1
  std::string feedback = "none";
  Options feedback_options;
  // That the inner optimizer keeps and uses (Engine::inner_arrays); nothing: not known yet.
  std::optional<std::size_t> inner_arrays = {};
};

struct Composition {
  const StrategyDescriptor* strategy = nullptr;
  Options strategy_options;
  const PlannerDescriptor* planner = nullptr;
  Options planner_options;
  const SparsifierDescriptor* sparsifier = nullptr;  // null: nothing is sparsified
  Options sparsifier_options;
  // Shared with the engines that are made from this composition.
  std::shared_ptr<const Collective> dense_collective;
  std::shared_ptr<const Collective> sparse_collective;
  Options collective_options;
  Options sending;       // of SendingOptions()
  PayloadCoding coding;  // of index/value payloads
  double density = 1.0;
  int threshold_period = 1;
  // The number of first steps in which units are sent dense, by DensePlan of the later steps' plan.
  std::uint64_t dense_warmup_steps = 0;
  Feedback feedback;
  std::optional<std::size_t> inner_arrays;  // as MethodParts

  std::unique_ptr<Strategy> MakeStrategy() const { return strategy->make(strategy_options); }
  std::unique_ptr<Sparsifier> MakeSparsifier(std::uint64_t seed) const;  // null: none
  // Encodes whole (unsparsified) tensors. Null: they are sent as index/value pairs.
  std::unique_ptr<Quantizer> MakeDenseQuantizer(std::uint64_t seed) const;
  bool needs_profile() const;  // to plan
  // The first step, from 0, that represents most steps. Steps before it are sent dense, or do rare
  // work, like the votes on ranges in Ok-Topk.
  std::uint64_t usual_step() const;
  std::optional<LocalSteps> local_steps() const;
};

// Throws Error{kConfig} naming the part or option that does not exist or does not fit.
Composition Compose(const MethodParts& parts);

// Throws Error{kConfig} if the collective does not support this number of ranks.
void CheckTopology(const Composition& composition, const Topology& topology);

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
};

// The tensors that an experiment treats specially. A name chooses the tensor of that name, or else
// all tensors whose names it matches as a regular expression.
struct TensorChoice {
  std::size_t max_ndim = 0;                   // tensors of at most so many dimensions are dense
  std::vector<std::string> dense;             // never sparsified
  std::vector<std::string> without_feedback;  // their unsent elements are lost
  // Dense tensors lie after the others, for strategies that select from fused buffers.
  bool dense_apart = false;
};

// The tensors in ready order, with the chosen ones marked. Throws Error{kConfig} if a name fits no
// tensor of `whose` ("workload digits-mlp").
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const TensorChoice& choice,
                          const std::string& whose);

// Throws Error{kConfig} for tensors without feedback if the strategy selects from fused buffers,
// because all tensors of a buffer take part in its feedback.
Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost);

// The configuration of a rank's engine, except its deadline. Equal on all ranks.
LiveConfig MakeLiveConfig(const Composition& composition, GradientLayout layout, Plan plan,
                          const Topology& topology, std::uint64_t seed);

// The configuration of a modelled step with these costs, which also made its plan. Every lane has a
// core of its own.
ModelConfig MakeModelConfig(const Composition& composition, GradientLayout layout,
                            const Topology& topology, BackwardProfile backward, CostModel cost,
                            std::uint64_t seed);

// Throws Error{kConfig} naming the part or option that does not fit, and what was expected.
// `collective`: of the two collectives in `made`, the one that the method names.
void CheckParts(const Composition& made, const CollectiveDescriptor& collective);

}  // namespace sparfuse
