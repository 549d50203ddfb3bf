// Declares Strategy and the Engine that it drives. LiveEngine does the work; ModelEngine computes
// when the work would have happened. A strategy cannot tell which one it drives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/requests.hpp"
#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"
#include "core/localsteps/local_steps.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

class Engine {
 public:
  virtual ~Engine() = default;

  virtual int rank() const noexcept = 0;
  virtual int workers() const noexcept = 0;
  virtual const Topology& topology() const noexcept = 0;
  virtual const GradientLayout& layout() const noexcept = 0;
  virtual const Plan& plan() const noexcept = 0;
  virtual std::uint64_t step() const noexcept = 0;  // from 0
  // Arrays, each as long as the parameters, that the workload's optimizer keeps from step to step.
  virtual std::size_t inner_arrays() const noexcept { return 0; }

  virtual Handle Pack(PackRequest request) = 0;
  virtual Handle Sparsify(SparsifyRequest request) = 0;
  // Throws Error{kInternal} if the pattern covers no element, has an owner outside the channel or
  // does not fit the channel.
  virtual Handle Exchange(ExchangeRequest request) = 0;
  virtual Handle Negotiate(NegotiateRequest request) = 0;
  virtual Handle Merge(MergeRequest request) = 0;
  virtual Handle Apply(ApplyRequest request) = 0;
  virtual Handle StartTimer(double seconds, Continuation then) = 0;

  // Whether an exchange, which may be in the background, is over on this rank. It may still go on
  // on others.
  virtual bool IsOver(Handle exchange) const = 0;
  // Bytes of a finished selection, 8 an element. The coded size is not known until an exchange has
  // merged its selections. Precondition: the selection's continuation has run or is running.
  virtual std::uint64_t PayloadBytes(Handle sparsified) const = 0;

  // Mark a wait that belongs to the method (for example until other ranks close a buffer). It
  // becomes a span of kind `wait` and is added to align_wait_seconds.
  virtual void BeginWait(std::string label) = 0;
  virtual void EndWait(const std::string& label) = 0;
};

// Reacts for a method to the events of a step. Each rank has one object, used by one thread at a
// time; it sees no gradient values. A step ends when every element of the layout has been applied
// and all requests made after the update are done.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void StepBegin(Engine&) {}
  // Called once a step for each tensor of the layout, as soon as its gradient is final. A tensor
  // without a gradient in this step is announced after the others, as zeros.
  virtual void GradientReady(Engine& engine, std::size_t tensor) = 0;
  virtual void BackwardEnd(Engine&) {}
  // Called after the optimizer's update, for strategies with local steps only.
  virtual void Updated(Engine&) {}
  // Called once after the last step, to take the exchanges still under way in the background.
  virtual void Finish(Engine&) {}
};

struct StrategyDescriptor {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  int revision;
  std::string_view deviations = {};
  // Where the strategy sparsifies its units; decides which sparsifiers and collectives fit.
  Sparsified sparsified;
  std::vector<OptionSpec> options = {};
  std::function<std::unique_ptr<Strategy>(const Options& resolved)> make;
  // The strategy sends the units of the plan; it all-reduces the unsparsified ones.
  bool dense_units = false;
  // It sparsifies shards of a sum over the ranks of a node. Its payloads travel between ranks of
  // equal place on their nodes, so all nodes must have equally many ranks.
  bool node_shards = false;
  // Such shards consist of whole tensors.
  bool whole_shards = false;
  // Each part of a unit has an owner, a rank that sums the part and selects from the sum again.
  bool owned_parts = false;
  // Such parts may travel whole, encoded by a quantizer, which owners apply again to the sums.
  bool owned_whole = false;
  // Whether, with these options, some unsent elements are kept in no residual; null: none are lost.
  bool (*loses)(const Options& resolved) = nullptr;
  // The schedule of ranks that train by themselves and share an anchor, so that their parameters
  // may differ; null: parameters are equal after every step. Throws Error{kConfig} for options
  // that do not fit.
  LocalSteps (*local_steps)(const Options& resolved) = nullptr;
  // A step applies the gradients that the previous step sent in the background. The first step
  // applies nothing.
  bool delays = false;
};

// The strategies that no paper owns: they send the units of a plan dense, sparsified ahead,
// sparsified behind, and sparsified behind after a sum within each node.
std::span<const StrategyDescriptor> CoreStrategies();

}  // namespace sparfuse
