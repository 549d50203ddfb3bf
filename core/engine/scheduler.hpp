// What both engines share: handles, dependencies, lanes' ready order, channels' launch order, the
// end of a step. Keeping it in one class is what keeps the two engines from drifting apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/engine/engine.hpp"

namespace sparfuse {

enum class OpKind : std::uint8_t { kPack, kSparsify, kExchange, kNegotiate, kApply, kTimer };

struct Op {
  OpKind kind = OpKind::kPack;
  Lane lane = Lane::kCompute;
  Channel channel = Channel::kData;
  Range range;                       // kExchange, kApply: from the first of `parts` to the last
  std::vector<Range> parts;          // kExchange, kApply: ascending, none touching the next
  std::size_t tensor = 0;            // kPack
  double density = 1.0;              // kSparsify
  std::string_view residual;         // kSparsify
  std::string label;                 // kExchange
  std::vector<Handle> selections;    // kExchange
  std::vector<std::int64_t> values;  // kNegotiate, in and out
  Handle exchange = 0;               // kApply
  double seconds = 0;                // kTimer
  Continuation then;
  std::function<void(std::span<const std::int64_t>)> then_values;

  std::uint32_t waits_for = 0;     // operations that it starts after and that it still waits for
  std::vector<Handle> dependents;  // start when this is done
  std::vector<Handle> followers;   // start when this has started (StepScheduler::Follows)
  std::vector<Handle> follows;     // those that have this among their followers
  bool started = false;            // kPack, kSparsify, kApply
  bool done = false;
  std::uint64_t payload_bytes = 0;  // kSparsify, kExchange: what this rank contributes

  std::size_t elements() const;  // of `parts`
  void* attachment = nullptr;    // the engine's own
};

// All members are used by one thread at a time (the one that reacts), except that an engine may
// read a started Op from the thread that works on it.
class StepScheduler : public Engine {
 public:
  StepScheduler(GradientLayout layout, Plan plan, Topology topology, int rank);

  int rank() const noexcept final { return rank_; }
  int workers() const noexcept final { return topology_.ranks; }
  const Topology& topology() const noexcept final { return topology_; }
  const GradientLayout& layout() const noexcept final { return layout_; }
  const Plan& plan() const noexcept final { return plan_; }

  Handle Pack(PackRequest request) final;
  Handle Sparsify(SparsifyRequest request) final;
  Handle Exchange(ExchangeRequest request) final;
  Handle Negotiate(NegotiateRequest request) final;
  Handle Apply(ApplyRequest request) final;
  Handle StartTimer(double seconds, Continuation then) final;
  std::uint64_t PayloadBytes(Handle sparsified) const final;

 protected:
  // Between steps: what follows goes by another plan of the same layout.
  void SetPlan(Plan plan);

  // The operation's dependencies are done; do it, then call Finish(handle) in a reaction.
  virtual void StartLocal(Handle handle, Op& op) = 0;
  virtual void StartExchange(Handle handle, Op& op) = 0;  // kExchange and kNegotiate
  virtual void StartTimerOp(Handle handle, Op& op) = 0;
  // Every element has been applied and nothing is under way.
  virtual void StepComplete() = 0;
  // `second`, a local operation, may start as soon as `first` has: the engine keeps them in order.
  virtual bool Follows(const Op& /*first*/, const Op& /*second*/) const { return false; }
  // What comes after an Apply that has started comes after its end: the step need not wait for it.
  virtual bool SettlesWhenStarted(const Op& /*apply*/) const { return false; }
  // All but what settles when started is done. Called before StepComplete, perhaps more than once.
  virtual void StepSettled() {}

  void ResetStep();
  void Finish(Handle handle);
  Op& op(Handle handle) { return ops_[handle - 1]; }
  const Op& op(Handle handle) const { return ops_[handle - 1]; }
  std::size_t operations() const noexcept { return ops_.size(); }
  // "tensor 12 to 15 not applied", for errors about steps that do not end.
  std::string DescribeUnfinished() const;

 private:
  Handle Add(Op op, const std::vector<Handle>& after);
  void Release(Handle handle);
  void Settle(Op& settled);
  void AdvanceChannel(Channel channel);

  GradientLayout layout_;
  Plan plan_;
  Topology topology_;
  int rank_;
  std::deque<Op> ops_;  // stable addresses while it grows
  struct ChannelState {
    std::deque<Handle> queue;
    bool busy = false;
  };
  std::array<ChannelState, kChannels> channels_;
  std::size_t applied_ = 0;
  std::size_t unfinished_ = 0;        // operations other than timers
  std::size_t settled_elements_ = 0;  // of Applies
  std::size_t unsettled_ = 0;         // operations other than timers
  bool complete_ = false;
};

}  // namespace sparfuse
