// Keeps the order of a step's operations for both engines: dependencies, the launch order of
// channels, the end of the step. One class does it so that the two engines cannot drift apart.
//
// An operation starts when its predecessors are done. If a stream keeps two operations in order by
// itself (StreamsOrder), the later one starts as soon as the earlier one has been started. The step
// then goes on when its last Apply has been started, done or not. On a device:
//
//   Pack(t)          is given to the compute stream.
//   Sparsify(t)      comes after the pack, and is given to the stream at once.
//   Exchange({t})    starts when the selection is done: the host must know its count.
//   Apply(exchange)  starts when the exchange is done, and is given to the stream. StepApplied is
//                    called: the update may be given to the stream too. When the stream has done
//                    the Apply, StepComplete is called.
#pragma once

#include <algorithm>
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

// All members are used by one thread at a time, the thread that reacts. As an exception, an engine
// may read a started Op from the thread that works on it.
class StepScheduler : public Engine {
 public:
  // exchange_host_seconds: host time to prepare an exchange or a negotiation (to agree with other
  // ranks that it is due, to launch it), once its predecessors are done and its turn has come. The
  // host prepares one after another, in parallel with the network: it prepares the next while one
  // is on the way.
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
  bool IsOver(Handle exchange) const final { return KnownExchange(exchange, "is_over").done; }
  // Between steps: whether an exchange in the background has not been taken yet. The same on all
  // ranks.
  bool HasUnderWay() const {
    return std::ranges::any_of(background_, [](const auto& entry) { return !entry.second.taken; });
  }
  std::uint64_t PayloadBytes(Handle sparsified) const override;

 protected:
  // The topology of the ranks that share a channel with this rank.
  Topology TopologyOf(Channel channel) const;
  // This rank's place among them.
  int MemberOf(Channel channel) const;
  // The position of this rank's own selection in a ToOwners; past the last if it owns none.
  std::size_t PartOf(const ExchangeRequest& exchange) const;
  // Call between steps: the following steps use this plan of the same layout.
  void SetPlan(Plan plan);

  // Called when the operation's dependencies are done. Do it, then call Finish(handle) in a
  // reaction.
  virtual void StartLocal(Handle handle, Op& op) = 0;
  virtual void StartExchange(Handle handle, Op& op) = 0;  // or negotiation
  virtual void StartTimerOp(Handle handle, double seconds) = 0;
  // Whether streams keep the two in order, so that `second`, a local operation, may be started once
  // `first` has been.
  virtual bool StreamsOrder(const Op& /*first*/, const Op& /*second*/) const { return false; }
  // Whether the stream already orders later work of the compute lane after this Apply, so that the
  // step need not wait for its completion.
  virtual bool OrderedByStream(const Op& /*apply*/) const { return false; }
  // Called before StepComplete, perhaps more than once. Every element has been applied, at least
  // for later work of the compute lane. All operations are done but Applies that a stream orders.
  virtual void StepApplied() {}
  // Called when every element has been applied and only background exchanges are under way. Called
  // again when the requests of Synchronise are done. A dense one may still wait for its turn on the
  // channel; one with selections has begun, since these belong to the step.
  virtual void StepComplete() = 0;

  // Forgets the step's operations. Background exchanges go on.
  void ResetStep();
  // Backward has ended, and a caller waits for the step's end. From then on, a step that is not
  // fully applied but has nothing under way is an error at once: it would never end.
  void AwaitEnd();
  // After the update: `ask` makes requests, and the step is complete again when they are done.
  void Synchronise(const std::function<void()>& ask);
  void Finish(Handle handle);
  Op& op(Handle handle) {
    return handle < kFirstInBackground ? ops_[handle - 1] : background_.at(handle);
  }
  const Op& op(Handle handle) const {
    return handle < kFirstInBackground ? ops_[handle - 1] : background_.at(handle);
  }
  // Whether the exchange is in the background and no earlier step has taken it.
  bool InBackground(Handle handle) const { return background_.contains(handle); }
  // "tensor 12 to 15 not applied", for errors about steps that do not end.
  std::string DescribeUnfinished() const;

 private:
  template <class Request>
  Handle Add(Request request, std::vector<Range> parts = {});
  std::vector<Range> PartsOf(const ExchangeRequest& exchange) const;
  Op& NewOp(bool background, Handle& handle);
  void Release(Handle handle);
  void ReadyToSend(Handle handle);
  void LeaveToBackground();
  void TakeOwn(std::size_t elements);
  void TakeAsOrdered(const Op& over);
  void CheckOrdered() {
    if (ordered_.applied == layout_.numel() && ordered_.open == 0) StepApplied();
  }
  void CheckComplete();
  void CheckGoesOn() const;
  const Op& Known(Handle handle, const char* where) const;
  const Op& KnownExchange(Handle handle, const char* where) const;
  std::string FirstNotApplied() const;
  void AdvanceChannel(Channel channel);
  void PrepareNextOnHost();

  GradientLayout layout_;
  Plan plan_;
  Topology topology_;
  int rank_;
  double exchange_host_seconds_;
  std::deque<Op> ops_;               // of this step; its addresses are stable while it grows
  std::map<Handle, Op> background_;  // exchanges that no Apply of an earlier step has taken
  Handle next_in_background_ = kFirstInBackground;
  struct ChannelState {
    std::deque<Handle> queue;
    bool busy = false;
  };
  std::array<ChannelState, kChannels> channels_;
  ChannelState host_;  // exchanges of all channels that wait for the host only
  struct Progress {
    std::size_t applied = 0;  // elements
    std::size_t open = 0;     // operations not done; no timers, no exchanges left to the background
  };
  std::size_t timers_ = 0;  // not done
  bool awaited_ = false;    // only continuations make requests
  Progress done_;
  Progress ordered_;  // an Apply that a stream orders counts from its start
  bool complete_ = false;
};

}  // namespace sparfuse
