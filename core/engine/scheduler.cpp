#include "core/engine/scheduler.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse {

std::string_view LaneName(Lane lane) {
  static constexpr std::string_view kNames[] = {"compute", "side", "host"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string_view ChannelName(Channel channel) {
  static constexpr std::string_view kNames[] = {
      "control",         "data",      "intra-node",     "inter-node",
      "intra-node-back", "data-back", "inter-node-back"};
  return kNames[static_cast<std::size_t>(channel)];
}

StepScheduler::StepScheduler(GradientLayout layout, Plan plan, Topology topology, int rank,
                             double exchange_host_seconds)
    : layout_(std::move(layout)),
      plan_(std::move(plan)),
      topology_(topology),
      rank_(rank),
      exchange_host_seconds_(exchange_host_seconds) {
  CheckPlan(plan_, layout_);
}

void StepScheduler::SetPlan(Plan plan) {
  CheckPlan(plan, layout_);
  plan_ = std::move(plan);
}

Topology StepScheduler::TopologyOf(Channel channel) const {
  const int per_node = topology_.ranks_per_node;
  const int node = topology_.NodeOf(rank_), local = topology_.LocalRankOf(rank_);
  if (IsWithinNode(channel)) {
    const int ranks = std::min(per_node, topology_.ranks - node * per_node);
    return {ranks, ranks};
  }
  if (IsBetweenNodes(channel)) {
    return {(topology_.ranks - local + per_node - 1) / per_node, 1};
  }
  return topology_;
}

int StepScheduler::MemberOf(Channel channel) const {
  if (IsWithinNode(channel)) return topology_.LocalRankOf(rank_);
  return IsBetweenNodes(channel) ? topology_.NodeOf(rank_) : rank_;
}

std::size_t StepScheduler::PartOf(const Op& exchange) const {
  const int members = TopologyOf(exchange.channel).ranks;
  return static_cast<std::size_t>((MemberOf(exchange.channel) + members - exchange.owner) %
                                  members);
}

void StepScheduler::ResetStep() {
  ops_.clear();
  for (auto& channel : channels_) channel = {};
  host_ = {};
  done_ = ordered_ = {};
  complete_ = false;
}

Handle StepScheduler::Add(Op added, const std::vector<Handle>& after) {
  ops_.push_back(std::move(added));
  const auto handle = static_cast<Handle>(ops_.size());
  Op& self = ops_.back();
  const auto wait_for = [&](Handle other) {
    assert(other >= 1 && other < handle);
    Op& first = op(other);
    if (first.kind == OpKind::kExchange) self.exchanges.push_back(other);
    if (first.done) return;
    if (StreamsOrder(first, self)) {
      self.stream_predecessors.push_back(other);
      if (first.started) return;
      first.stream_successors.push_back(handle);
    } else {
      first.dependents.push_back(handle);
    }
    ++self.waits_for;
  };
  for (const Handle other : after) wait_for(other);
  for (const Handle other : self.selections) wait_for(other);
  if (self.exchange != 0) wait_for(self.exchange);
  if (self.forwarded != 0) wait_for(self.forwarded);
  if (self.kind != OpKind::kTimer) {
    ++done_.open;
    ++ordered_.open;
  }
  if (self.kind == OpKind::kExchange || self.kind == OpKind::kNegotiate) {
    channels_[static_cast<std::size_t>(self.channel)].queue.push_back(handle);
  }
  if (self.waits_for == 0) Release(handle);
  return handle;
}

void StepScheduler::Release(Handle handle) {
  Op& ready = op(handle);
  switch (ready.kind) {
    case OpKind::kExchange:
    case OpKind::kNegotiate:
      if (exchange_host_seconds_ <= 0) return AdvanceChannel(ready.channel);
      ++ready.waits_for;  // for the host
      host_.queue.push_back(handle);
      return PrepareNextOnHost();
    case OpKind::kTimer:
      return StartTimerOp(handle, ready);
    default:
      break;
  }
  StartLocal(handle, ready);
  ready.started = true;
  for (const Handle successor : ready.stream_successors) {
    if (--op(successor).waits_for == 0) Release(successor);
  }
  if (ready.kind == OpKind::kApply && OrderedByStream(ready)) TakeAsOrdered(ready);
}

void StepScheduler::TakeAsOrdered(const Op& over) {
  if (over.kind == OpKind::kApply) ordered_.applied += over.elements();
  --ordered_.open;
  if (ordered_.applied == layout_.numel() && ordered_.open == 0) StepApplied();
}

void StepScheduler::AdvanceChannel(Channel which) {
  ChannelState& channel = channels_[static_cast<std::size_t>(which)];
  if (channel.busy || channel.queue.empty()) return;
  const Handle head = channel.queue.front();
  if (op(head).waits_for > 0) return;
  channel.queue.pop_front();
  channel.busy = true;
  if (op(head).kind == OpKind::kExchange) {
    for (const Handle part : op(head).selections) op(head).payload_bytes += op(part).payload_bytes;
    if (!op(head).sparse) {
      op(head).payload_bytes = (op(head).f16 ? 2 : sizeof(float)) * op(head).elements();
    }
  }
  StartExchange(head, op(head));
}

void StepScheduler::PrepareNextOnHost() {
  if (host_.busy || host_.queue.empty()) return;
  host_.busy = true;
  const Handle prepared = host_.queue.front();
  host_.queue.pop_front();
  StartTimer(exchange_host_seconds_, [this, prepared] {
    host_.busy = false;
    --op(prepared).waits_for;
    AdvanceChannel(op(prepared).channel);
    PrepareNextOnHost();
  });
}

void StepScheduler::Finish(Handle handle) {
  Op& finished = op(handle);
  assert(!finished.done);
  finished.done = true;
  if (finished.kind == OpKind::kApply) done_.applied += finished.elements();
  // Continuations come before dependents: what a strategy asks for now is queued before what was
  // only waiting, in both engines.
  if (finished.then) finished.then();
  if (finished.then_values) finished.then_values(finished.values);
  for (const Handle dependent : finished.dependents) {
    if (--op(dependent).waits_for == 0) Release(dependent);
  }
  if (finished.kind == OpKind::kExchange || finished.kind == OpKind::kNegotiate) {
    channels_[static_cast<std::size_t>(finished.channel)].busy = false;
    AdvanceChannel(finished.channel);
  }
  if (finished.kind != OpKind::kTimer) {
    --done_.open;
    if (finished.kind != OpKind::kApply || !OrderedByStream(finished)) TakeAsOrdered(finished);
  }
  if (!complete_ && done_.applied == layout_.numel() && done_.open == 0) {
    complete_ = true;
    StepComplete();
  }
}

Handle StepScheduler::Pack(PackRequest request) {
  Op pack;
  pack.kind = OpKind::kPack;
  pack.lane = request.lane;
  pack.tensor = request.tensor;
  pack.range = layout_.tensor(request.tensor).range();
  pack.then = std::move(request.order.then);
  return Add(std::move(pack), request.order.after);
}

Handle StepScheduler::Sparsify(SparsifyRequest request) {
  Op sparsify;
  sparsify.kind = OpKind::kSparsify;
  sparsify.lane = request.lane;
  sparsify.range = request.range;
  sparsify.density = request.density;
  sparsify.residual = request.residual;
  sparsify.as_rank = request.copy_of.value_or(rank_);
  sparsify.copies = sparsify.as_rank != rank_;
  sparsify.then = std::move(request.order.then);
  return Add(std::move(sparsify), request.order.after);
}

namespace {

// members: of the exchange's channel.
void CheckExchange(const Op& exchange, int members) {
  const auto require = [&](bool holds, const char* expected) {
    if (holds) return;
    SPARFUSE_THROW(kInternal, exchange.label + ", an exchange on channel " +
                                  std::string(ChannelName(exchange.channel)) + ": expected " +
                                  expected);
  };
  const Pattern pattern = exchange.pattern;
  require(!exchange.parts.empty(), "a range, or selections, of at least one element");
  require((pattern == Pattern::kSum && !exchange.f16) || exchange.parts.size() == 1,
          "one range of a pattern other than a sum, and of halves");
  require(!exchange.sparse || (pattern != Pattern::kAllGather && !exchange.f16),
          "dense ranges of an all-gather, and of halves");
  require(exchange.shared || (exchange.forwarded == 0 && pattern != Pattern::kFromOwner),
          "a shared range of what is forwarded, or given by one member");
  require(exchange.owner >= 0 && exchange.owner < members, "an owner among the members");
}

}  // namespace

Handle StepScheduler::Exchange(ExchangeRequest request) {
  Op exchange;
  exchange.kind = OpKind::kExchange;
  exchange.channel = request.channel;
  exchange.pattern = request.pattern;
  exchange.selections = std::move(request.selections);
  const auto add = [&parts = exchange.parts](const Range& range) {
    if (range.size() == 0) return;
    if (!parts.empty() && parts.back().end == range.begin) {
      parts.back().end = range.end;
    } else {
      parts.push_back(range);
    }
  };
  for (const Range& range : request.ranges) add(range);
  for (const Handle selection : exchange.selections) add(op(selection).range);
  exchange.shared = request.shared;
  exchange.forwarded = request.forwarded;
  exchange.owner = request.owner;
  exchange.f16 = request.f16;
  exchange.counts = request.counts;
  exchange.residual = request.residual;
  exchange.sparse = exchange.shared || !exchange.selections.empty();
  if (exchange.shared) exchange.parts = {exchange.shared->range};
  exchange.label = std::move(request.label);
  CheckExchange(exchange, TopologyOf(exchange.channel).ranks);
  exchange.range = {exchange.parts.front().begin, exchange.parts.back().end};
  exchange.then = std::move(request.order.then);
  return Add(std::move(exchange), request.order.after);
}

Handle StepScheduler::Negotiate(NegotiateRequest request) {
  Op negotiate;
  negotiate.kind = OpKind::kNegotiate;
  negotiate.channel = request.channel;
  negotiate.values = std::move(request.values);
  negotiate.then_values = std::move(request.then);
  return Add(std::move(negotiate), request.after);
}

Op StepScheduler::OfExchange(OpKind kind, Handle exchange, Lane lane) const {
  Op local;
  local.kind = kind;
  local.lane = lane;
  local.exchange = exchange;
  local.range = op(exchange).range;
  local.parts = op(exchange).parts;
  return local;
}

Handle StepScheduler::Merge(MergeRequest request) {
  Op merge = OfExchange(OpKind::kMerge, request.exchange, request.lane);
  merge.then = std::move(request.order.then);
  return Add(std::move(merge), request.order.after);
}

Handle StepScheduler::Apply(ApplyRequest request) {
  Op apply = OfExchange(OpKind::kApply, request.exchange, request.lane);
  apply.then = std::move(request.order.then);
  return Add(std::move(apply), request.order.after);
}

Handle StepScheduler::StartTimer(double seconds, Continuation then) {
  Op timer;
  timer.kind = OpKind::kTimer;
  timer.seconds = seconds;
  timer.then = std::move(then);
  return Add(std::move(timer), {});
}

std::uint64_t StepScheduler::PayloadBytes(Handle sparsified) const {
  assert(op(sparsified).kind == OpKind::kSparsify && op(sparsified).done);
  return op(sparsified).payload_bytes;
}

std::string StepScheduler::DescribeUnfinished() const {
  static constexpr const char* kKinds[] = {"pack",  "sparsify", "exchange", "negotiate",
                                           "merge", "apply",    "timer"};
  std::string text = std::to_string(done_.applied) + " of " + std::to_string(layout_.numel()) +
                     " elements applied";
  for (const Op& each : ops_) {
    if (each.done || each.kind == OpKind::kTimer) continue;
    text += "; first unfinished: " + std::string(kKinds[static_cast<std::size_t>(each.kind)]) +
            " " + each.label + " of elements [" + std::to_string(each.range.begin) + ", " +
            std::to_string(each.range.end) + ")";
    break;
  }
  return text;
}

}  // namespace sparfuse
