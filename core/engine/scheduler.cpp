#include "core/engine/scheduler.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse {

namespace {

// Returns the gradient elements that the operation makes ready for the optimizer.
std::size_t AppliedBy(const Op& over) {
  const auto* apply = over.If<ApplyRequest>();
  return apply != nullptr && apply->to == ApplyTo::kGradient ? over.elements() : 0;
}

}  // namespace

std::string_view LaneName(Lane lane) {
  static constexpr std::string_view kNames[] = {"compute", "side", "host"};
  return kNames[static_cast<std::size_t>(lane)];
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

std::size_t StepScheduler::PartOf(const ExchangeRequest& exchange) const {
  const int members = TopologyOf(exchange.channel).ranks;
  return static_cast<std::size_t>((MemberOf(exchange.channel) + members - exchange.owner()) %
                                  members);
}

void StepScheduler::ResetStep() {
  std::erase_if(background_, [](const auto& entry) { return entry.second.taken; });
  for (auto& [handle, exchange] : background_) {  // its predecessors are done and gone
    exchange.exchanges.clear();
    exchange.dependents.clear();
  }
  ops_.clear();
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    if (channel != static_cast<std::size_t>(Channel::kBackground)) channels_[channel] = {};
  }
  host_ = {};
  done_ = ordered_ = {};
  timers_ = 0;
  awaited_ = false;
  complete_ = false;
}

void StepScheduler::AwaitEnd() {
  awaited_ = true;
  CheckGoesOn();
}

void StepScheduler::Synchronise(const std::function<void()>& ask) {
  complete_ = false;
  ++done_.open;  // operations that finish during ask() do not end the step
  ask();
  --done_.open;
  CheckComplete();
}

Op& StepScheduler::NewOp(bool background, Handle& handle) {
  if (background) {
    handle = next_in_background_++;
    return background_[handle];
  }
  Op& self = ops_.emplace_back();
  handle = static_cast<Handle>(ops_.size());
  return self;
}

template <class Request>
Handle StepScheduler::Add(Request request, std::vector<Range> parts) {
  for (const Handle other : request.order.after) Known(other, "after");
  bool background = false;
  if constexpr (requires { request.background; }) background = request.background;
  Handle handle = 0;
  Op& self = NewOp(background, handle);
  if constexpr (requires { request.lane; }) self.lane = request.lane;
  if constexpr (requires { request.channel; }) self.channel = request.channel;
  if constexpr (requires { request.exchange; }) self.summed = request.exchange;
  self.step = step();
  self.request = std::move(request);
  self.parts = std::move(parts);
  const auto wait_for = [&](Handle other) {
    Op& first = op(other);
    if (first.If<ExchangeRequest>()) self.exchanges.push_back(other);
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
  for (const Handle other : self.order().after) wait_for(other);
  if (self.summed != 0) {
    wait_for(self.summed);
    op(self.summed).taken = true;
  }
  if (const auto* exchange = self.If<ExchangeRequest>()) {
    for (const Handle other : exchange->selections()) wait_for(other);
    if (exchange->forwarded() != 0) wait_for(exchange->forwarded());
  }
  if (self.If<TimerRequest>()) {
    ++timers_;
  } else {
    ++done_.open;
    ++ordered_.open;
  }
  if (self.communicates()) {
    channels_[static_cast<std::size_t>(self.channel)].queue.push_back(handle);
  }
  if (self.waits_for == 0) Release(handle);
  return handle;
}

void StepScheduler::Release(Handle handle) {
  Op& ready = op(handle);
  if (const auto* timer = ready.If<TimerRequest>()) return StartTimerOp(handle, timer->seconds);
  if (ready.communicates()) {
    if (exchange_host_seconds_ <= 0) return ReadyToSend(handle);
    ++ready.waits_for;  // for the host
    host_.queue.push_back(handle);
    return PrepareNextOnHost();
  }
  StartLocal(handle, ready);
  ready.started = true;
  for (const Handle successor : ready.stream_successors) {
    if (--op(successor).waits_for == 0) Release(successor);
  }
  if (ready.If<ApplyRequest>() && OrderedByStream(ready)) TakeAsOrdered(ready);
}

void StepScheduler::TakeAsOrdered(const Op& over) {
  ordered_.applied += AppliedBy(over);
  --ordered_.open;
  CheckOrdered();
}

// The operation of a handle that a strategy gave.
const Op& StepScheduler::Known(Handle handle, const char* where) const {
  const bool known = handle < kFirstInBackground ? handle >= 1 && handle <= ops_.size()
                                                 : background_.contains(handle);
  if (known) return op(handle);
  SPARFUSE_THROW(kConfig, where, " has handle ", handle,
                 ", which is no operation of this step; expected a handle that a "
                 "request of this step returned");
}

const Op& StepScheduler::KnownExchange(Handle handle, const char* where) const {
  const Op& known = Known(handle, where);
  if (known.If<ExchangeRequest>()) return known;
  SPARFUSE_THROW(kConfig, where, " has handle ", handle,
                 ", which is no exchange; expected the handle of an exchange");
}

std::string StepScheduler::FirstNotApplied() const {
  for (std::size_t tensor = 0; tensor < layout_.tensors(); ++tensor) {
    const Range range = layout_.tensor(tensor).range();
    const bool applied = std::ranges::any_of(ops_, [&](const Op& each) {
      return AppliedBy(each) > 0 && std::ranges::any_of(each.parts, [&](const Range& part) {
               return part.begin <= range.begin && range.end <= part.end;
             });
    });
    if (!applied && range.size() > 0) return ", \"" + layout_.tensor(tensor).name + "\" is not";
  }
  return "";
}

void StepScheduler::CheckGoesOn() const {
  if (!awaited_ || complete_ || done_.open > 0 || timers_ > 0 || !background_.empty()) {
    return;
  }
  SPARFUSE_THROW(kConfig, "the strategy has nothing under way, but ", done_.applied, " of ",
                 layout_.numel(), " elements are applied", FirstNotApplied(),
                 "; expected each one once");
}

void StepScheduler::CheckComplete() {
  if (complete_ || done_.applied != layout_.numel() || done_.open > 0) return;
  complete_ = true;
  StepComplete();
}

// This rank's own gradients need no work.
void StepScheduler::TakeOwn(std::size_t elements) {
  done_.applied += elements;
  ordered_.applied += elements;
  CheckOrdered();
  CheckComplete();
}

// A dense exchange in the background needs nothing more of its step.
void StepScheduler::ReadyToSend(Handle handle) {
  AdvanceChannel(op(handle).channel);
  if (handle >= kFirstInBackground && !op(handle).sparse()) LeaveToBackground();
}

void StepScheduler::LeaveToBackground() {
  --done_.open;
  --ordered_.open;
  CheckOrdered();
  CheckComplete();
}

void StepScheduler::AdvanceChannel(Channel which) {
  ChannelState& channel = channels_[static_cast<std::size_t>(which)];
  if (channel.busy || channel.queue.empty()) return;
  const Handle head = channel.queue.front();
  if (op(head).waits_for > 0) return;
  channel.queue.pop_front();
  channel.busy = true;
  Op& next = op(head);
  if (const auto* exchange = next.If<ExchangeRequest>()) {
    for (const Handle part : exchange->selections()) next.payload_bytes += op(part).payload_bytes;
    if (!exchange->sparse()) {
      next.payload_bytes = (exchange->halves() ? 2 : sizeof(float)) * next.elements();
    }
  }
  StartExchange(head, next);
  if (head >= kFirstInBackground && next.sparse()) LeaveToBackground();
}

void StepScheduler::PrepareNextOnHost() {
  if (host_.busy || host_.queue.empty()) return;
  host_.busy = true;
  const Handle prepared = host_.queue.front();
  host_.queue.pop_front();
  StartTimer(exchange_host_seconds_, [this, prepared] {
    host_.busy = false;
    --op(prepared).waits_for;
    ReadyToSend(prepared);
    PrepareNextOnHost();
  });
}

void StepScheduler::Finish(Handle handle) {
  Op& finished = op(handle);
  assert(!finished.done);
  finished.done = true;
  done_.applied += AppliedBy(finished);
  // Continuations come before dependents: both engines queue a strategy's new requests before
  // operations that were only waiting.
  if (finished.order().then) finished.order().then();
  if (const auto* agreed = finished.If<NegotiateRequest>(); agreed && agreed->then) {
    agreed->then(agreed->values);
  }
  for (const Handle dependent : finished.dependents) {
    if (--op(dependent).waits_for == 0) Release(dependent);
  }
  if (finished.communicates()) {
    channels_[static_cast<std::size_t>(finished.channel)].busy = false;
    AdvanceChannel(finished.channel);
  }
  if (finished.If<TimerRequest>()) {
    --timers_;
  } else if (handle < kFirstInBackground) {
    --done_.open;
    if (!finished.If<ApplyRequest>() || !OrderedByStream(finished)) TakeAsOrdered(finished);
  }
  CheckComplete();
  CheckGoesOn();
}

Handle StepScheduler::Pack(PackRequest request) {
  const Range range = layout_.tensor(request.tensor).range();
  return Add(std::move(request), {range});
}

Handle StepScheduler::Sparsify(SparsifyRequest request) {
  if (request.copy_of == rank_) request.copy_of.reset();
  const Range range = request.range;
  return Add(std::move(request), {range});
}

std::vector<Range> StepScheduler::PartsOf(const ExchangeRequest& exchange) const {
  std::vector<Range> parts;
  const auto add = [&parts](const Range& range) {
    if (range.size() == 0) return;
    if (!parts.empty() && parts.back().end == range.begin) {
      parts.back().end = range.end;
    } else {
      parts.push_back(range);
    }
  };
  std::visit(
      [&]<class Kind>(const Kind& of) {
        if constexpr (requires { of.ranges; }) std::ranges::for_each(of.ranges, add);
        if constexpr (requires { of.range; }) add(of.range);
        if constexpr (requires { of.shared; }) add(of.shared.range);
        if constexpr (requires { of.selections; }) {
          for (const Handle selection : of.selections) add(op(selection).range());
        }
      },
      exchange.pattern);
  return parts;
}

Handle StepScheduler::Exchange(ExchangeRequest request) {
  for (const Handle selection : request.selections()) {
    if (Known(selection, "an exchange").If<SparsifyRequest>()) continue;
    SPARFUSE_THROW(kConfig, "an exchange has handle ", selection,
                   " among its selections; expected handles of Sparsify");
  }
  if (request.forwarded() != 0) KnownExchange(request.forwarded(), "an exchange");
  std::vector<Range> parts = PartsOf(request);
  const auto require = [&](bool holds, const char* expected) {
    if (holds) return;
    SPARFUSE_THROW(kInternal, request.label, ", an exchange on channel ",
                   ChannelName(request.channel), ": expected ", expected);
  };
  require(!parts.empty(), "a range, or selections, of at least one element");
  require(request.background == (request.channel == Channel::kBackground),
          "the background's channel for an exchange in the background, and for no other exchange");
  require(request.owner() >= 0 && request.owner() < TopologyOf(request.channel).ranks,
          "an owner among the members");
  if (const std::span<const Range> shards = request.shards(); !shards.empty()) {
    const auto members = static_cast<std::size_t>(TopologyOf(request.channel).ranks);
    bool cover = shards.size() == members && shards.front().begin == parts.front().begin &&
                 shards.back().end == parts.back().end && request.halves() == nullptr;
    for (std::size_t j = 1; j < shards.size(); ++j) {
      cover = cover && shards[j].begin == shards[j - 1].end;
    }
    require(cover, "a shard of floats for each member, all of the range together");
  }
  return Add(std::move(request), std::move(parts));
}

Handle StepScheduler::Negotiate(NegotiateRequest request) { return Add(std::move(request)); }

Handle StepScheduler::Merge(MergeRequest request) {
  std::vector<Range> parts = KnownExchange(request.exchange, "merge").parts;
  return Add(std::move(request), std::move(parts));
}

Handle StepScheduler::Apply(ApplyRequest request) {
  if (request.own && request.to == ApplyTo::kGradient) {
    TakeOwn(request.own->size());
    return 0;
  }
  std::vector<Range> parts =
      request.own ? std::vector{*request.own} : KnownExchange(request.exchange, "apply").parts;
  return Add(std::move(request), std::move(parts));
}

Handle StepScheduler::StartTimer(double seconds, Continuation then) {
  return Add(TimerRequest{seconds, {.then = std::move(then)}});
}

std::uint64_t StepScheduler::PayloadBytes(Handle sparsified) const {
  const Op& selection = Known(sparsified, "payload_bytes");
  if (selection.If<SparsifyRequest>() && selection.done) return selection.payload_bytes;
  SPARFUSE_THROW(kConfig, "payload_bytes has handle ", sparsified,
                 "; expected a selection that is done");
}

std::string StepScheduler::DescribeUnfinished() const {
  static constexpr const char* kKinds[] = {"pack",  "sparsify", "exchange", "negotiate",
                                           "merge", "apply",    "timer"};
  std::string text = Concat(done_.applied, " of ", layout_.numel(), " elements applied");
  const auto describe = [&text](const char* which, const Op& each) {
    text += Concat("; ", which, kKinds[each.request.index()], " ", each.label(), " of elements [",
                   each.range().begin, ", ", each.range().end, ")");
  };
  for (const Op& each : ops_) {
    if (each.done || each.If<TimerRequest>()) continue;
    describe("first unfinished: ", each);
    break;
  }
  for (const auto& [handle, each] : background_) {
    if (!each.done) describe("in the background: ", each);
  }
  return text;
}

}  // namespace sparfuse
