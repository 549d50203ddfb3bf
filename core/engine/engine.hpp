// Declares what a Strategy may ask of an Engine. LiveEngine does the work, ModelEngine computes
// when it would have happened: a strategy cannot tell which one it drives.
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

  virtual Handle Pack(PackRequest request) = 0;
  virtual Handle Sparsify(SparsifyRequest request) = 0;
  // Throws Error{kInternal} where its pattern does not take what it is of.
  virtual Handle Exchange(ExchangeRequest request) = 0;
  virtual Handle Negotiate(NegotiateRequest request) = 0;
  virtual Handle Merge(MergeRequest request) = 0;
  virtual Handle Apply(ApplyRequest request) = 0;
  virtual Handle StartTimer(double seconds, Continuation then) = 0;

  // Bytes of a finished selection, 8 an element: what a coding makes of it is known when an
  // exchange has merged its selections. Precondition: its continuation has run or is running.
  virtual std::uint64_t PayloadBytes(Handle sparsified) const = 0;

  // A wait that belongs to the method (say for other ranks to close a buffer): a span of kind
  // `wait`, summed into align_wait_seconds.
  virtual void BeginWait(std::string label) = 0;
  virtual void EndWait(const std::string& label) = 0;
};

// Reacts for a method to the events of a step. One object a rank, used by one thread at a time; it
// sees no values. A step ends when every element of the layout has been applied, and what was asked
// for behind the update is done.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void StepBegin(Engine&) {}
  // Called once a step for each tensor of the layout, as soon as its gradient is final; a tensor
  // that got none in this step is announced after the others, as zeros.
  virtual void GradientReady(Engine& engine, std::size_t tensor) = 0;
  virtual void BackwardEnd(Engine&) {}
  // Of strategies with local steps: behind the optimizer's update.
  virtual void Updated(Engine&) {}
  // Once behind the last step, for what is still under way in the background.
  virtual void Finish(Engine&) {}
};

struct StrategyDescriptor {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  int revision;
  std::string_view deviations;
  // What the strategy needs of its units; decides which sparsifiers and collectives fit.
  Sparsified sparsified;
  std::vector<OptionSpec> options;
  std::function<std::unique_ptr<Strategy>(const Options& resolved)> make;
  // It sends units of the plan, those that the plan does not sparsify by all-reduce.
  bool dense_units = false;
  // What it sparsifies are shards of what the ranks of a node have summed: its payloads travel
  // between ranks of equal place on their nodes, which all have as many.
  bool node_shards = false;
  // Parts of its units are summed by the ranks that own them, and selected from again.
  bool owned_parts = false;
  // Such parts may travel whole, by a quantizer, which owners apply to the sums again.
  bool owned_whole = false;
  // With these options, some of what it does not send is in no residual; null: all of it is.
  bool (*loses)(const Options& resolved) = nullptr;
  // Ranks train by themselves and share an anchor, so that their parameters may differ; null: they
  // are equal after every step. Throws Error{kConfig} for options that do not fit.
  LocalSteps (*local_steps)(const Options& resolved) = nullptr;
  // A step applies what the one before has sent, in the background; the first step nothing.
  bool delays = false;
};

// The strategies that no paper owns: over the units of a plan dense, ahead, behind, and behind with
// sums within nodes first.
std::span<const StrategyDescriptor> CoreStrategies();

}  // namespace sparfuse
