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

#include "core/fusion/lane.hpp"
#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// An operation asked for in this step. 0 is none.
using Handle = std::uint32_t;
using Continuation = std::function<void()>;

// An ordered queue of exchanges with a communicator of its own. Every rank must ask for the
// exchanges of a channel in the same order; they are launched in that order, one at a time.
enum class Channel : std::uint8_t { kControl, kData, kIntraNode, kInterNode };
inline constexpr std::size_t kChannels = 4;
std::string_view ChannelName(Channel channel);

// Common to all requests: it starts when every handle in `after` is done; `then` runs on the event
// thread when it is done itself.
struct Ordering {
  std::vector<Handle> after;
  Continuation then;
};

struct PackRequest {  // copies a tensor's gradient into the flat gradient
  std::size_t tensor = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};
};

struct SparsifyRequest {  // selects from a range of the flat gradient, with error feedback
  // One tensor that has been announced (read where it lies), or a range whose tensors are packed.
  Range range;
  double density = 1.0;
  Lane lane = Lane::kCompute;
  // Which residual takes what is not sent. Each name is a store of its own over the flat gradient.
  std::string_view residual = "local";
  Ordering order = {};
};

struct ExchangeRequest {
  // Dense: what this exchange sums, packed ranges of the flat gradient, ascending and disjoint.
  std::vector<Range> ranges;
  // Sparse: Sparsify handles whose ranges are ascending and disjoint; their ranges are summed.
  std::vector<Handle> selections;
  Channel channel = Channel::kData;
  std::string label;    // for the timeline: "unit 3"
  Ordering order = {};  // the selections are waited for in any case
};

struct NegotiateRequest {  // element-wise maximum of small integers over all ranks
  std::vector<std::int64_t> values;
  Channel channel = Channel::kControl;
  std::vector<Handle> after;
  std::function<void(std::span<const std::int64_t>)> then;
};

struct ApplyRequest {  // sum of an exchange -> average, ready for the optimizer
  Handle exchange = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual int rank() const noexcept = 0;
  virtual int workers() const noexcept = 0;
  virtual const Topology& topology() const noexcept = 0;
  virtual const GradientLayout& layout() const noexcept = 0;
  virtual const Plan& plan() const noexcept = 0;

  virtual Handle Pack(PackRequest request) = 0;
  virtual Handle Sparsify(SparsifyRequest request) = 0;
  virtual Handle Exchange(ExchangeRequest request) = 0;
  virtual Handle Negotiate(NegotiateRequest request) = 0;
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
// sees no values. A step ends when every element of the layout has been applied.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void StepBegin(Engine&) {}
  // Called once a step for each tensor of the layout, as soon as its gradient is final; a tensor
  // that got none in this step is announced after the others, as zeros.
  virtual void GradientReady(Engine& engine, std::size_t tensor) = 0;
  virtual void BackwardEnd(Engine&) {}
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
  std::unique_ptr<Strategy> (*make)(const Options& resolved);
  // It sends units of the plan, those that the plan does not sparsify by all-reduce.
  bool dense_units = false;
};

// The strategies that no paper owns: dense, ahead and behind over the units of a plan.
std::span<const StrategyDescriptor> CoreStrategies();

}  // namespace sparfuse
