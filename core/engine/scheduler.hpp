// Keeps the order of a step's operations for both engines: dependencies, the launch order of
// channels, the end of the step. One class does it so that the two engines cannot drift apart.
//
// An operation is started when those that it comes after are done. Where streams keep two of them
// in order by themselves (StreamsOrder), the later one is started as soon as the earlier one has
// been, and the step goes on when its last Apply has been started, done or not. On a device:
//
//   Pack(t)          is given to the compute stream.
//   Sparsify(t)      comes after the pack: it is given to the stream at once, behind it.
//   Exchange({t})    starts when the selection is done: the host must know its count.
//   Apply(exchange)  starts when the exchange is done. It is given to the stream: StepApplied, the
//                    update may be given to it too. When the stream has done it: StepComplete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/engine/engine.hpp"
#include "core/engine/operation.hpp"

namespace sparfuse {

// All members are used by one thread at a time (the one that reacts), except that an engine may
// read a started Op from the thread that works on it.
class StepScheduler : public Engine {
 public:
  // exchange_host_seconds: what the host takes to prepare an exchange or a negotiation (to agree
  // with other ranks that it is due, to launch it) once it comes next after what it waits for. One
  // after another, beside the network: the next is prepared while one is on the way.
  StepScheduler(GradientLayout layout, Plan plan, Topology topology, int rank,
                double exchange_host_seconds = 0);

  int rank() const noexcept final { return rank_; }
  int workers() const noexcept final { return topology_.ranks; }
  const Topology& topology() const noexcept final { return topology_; }
  const GradientLayout& layout() const noexcept final { return layout_; }
  const Plan& plan() const noexcept final { return plan_; }

  Handle Pack(PackRequest request) final;
  Handle Sparsify(SparsifyRequest request) final;
  Handle Exchange(ExchangeRequest request) final;
  Handle Negotiate(NegotiateRequest request) final;
  Handle Merge(MergeRequest request) final;
  Handle Apply(ApplyRequest request) final;
  Handle StartTimer(double seconds, Continuation then) final;
  std::uint64_t PayloadBytes(Handle sparsified) const override;

 protected:
  // The ranks that share a channel with this one, as they lie on nodes.
  Topology TopologyOf(Channel channel) const;
  // This rank's place among them.
  int MemberOf(Channel channel) const;
  // The selection of a ToOwners whose range this rank owns, of which there may be none.
  std::size_t PartOf(const ExchangeRequest& exchange) const;
  // Between steps: what follows goes by another plan of the same layout.
  void SetPlan(Plan plan);

  // The operation's dependencies are done; do it, then call Finish(handle) in a reaction.
  virtual void StartLocal(Handle handle, Op& op) = 0;
  virtual void StartExchange(Handle handle, Op& op) = 0;  // or negotiation
  virtual void StartTimerOp(Handle handle, double seconds) = 0;
  // Streams keep the two in order: `second`, a local operation, may be started once `first` has
  // been.
  virtual bool StreamsOrder(const Op& /*first*/, const Op& /*second*/) const { return false; }
  // The stream already orders later work of the compute lane behind this Apply, so the step need
  // not wait for its completion.
  virtual bool OrderedByStream(const Op& /*apply*/) const { return false; }
  // Every element has been applied, at least for what the compute lane does from now on; all but
  // Applies that a stream orders is done. Called before StepComplete, perhaps more than once.
  virtual void StepApplied() {}
  // Every element has been applied and nothing is under way but in the background. Called again
  // when what was asked for in Synchronise is done.
  virtual void StepComplete() = 0;

  // What is in the background goes on.
  void ResetStep();
  // Behind the update: `ask` makes requests, and the step is complete again when they are done.
  void Synchronise(const std::function<void()>& ask);
  void Finish(Handle handle);
  Op& op(Handle handle) {
    return handle < kFirstInBackground ? ops_[handle - 1] : background_.at(handle);
  }
  const Op& op(Handle handle) const {
    return handle < kFirstInBackground ? ops_[handle - 1] : background_.at(handle);
  }
  // Whether an exchange in the background has not been taken in an earlier step.
  bool InBackground(Handle handle) const { return background_.contains(handle); }
  // "tensor 12 to 15 not applied", for errors about steps that do not end.
  std::string DescribeUnfinished() const;

 private:
  template <class Request>
  Handle Add(Request request, std::vector<Range> parts = {});
  std::vector<Range> PartsOf(const ExchangeRequest& exchange) const;
  Op& NewOp(bool background, Handle& handle);
  void Release(Handle handle);
  void TakeOwn(std::size_t elements);
  void TakeAsOrdered(const Op& over);
  void CheckOrdered();
  void CheckComplete();
  void AdvanceChannel(Channel channel);
  void PrepareNextOnHost();

  GradientLayout layout_;
  Plan plan_;
  Topology topology_;
  int rank_;
  double exchange_host_seconds_;
  std::deque<Op> ops_;               // of this step; stable addresses while it grows
  std::map<Handle, Op> background_;  // exchanges that no Apply of an earlier step has taken
  Handle next_in_background_ = kFirstInBackground;
  struct ChannelState {
    std::deque<Handle> queue;
    bool busy = false;
  };
  std::array<ChannelState, kChannels> channels_;
  ChannelState host_;  // exchanges of all channels that wait for nothing but the host
  struct Progress {
    std::size_t applied = 0;  // elements
    std::size_t open = 0;     // operations but timers, and exchanges in the background once begun
  };
  Progress done_;
  Progress ordered_;  // an Apply that a stream orders counts from its start
  bool complete_ = false;
};

}  // namespace sparfuse
