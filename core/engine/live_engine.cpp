// Reactions and the communication thread; the compute lane is in live_lanes.cpp.
#include "core/engine/live_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/collective/accumulate.hpp"
#include "core/feedback/returned.hpp"
#include "core/transport/priority.hpp"

namespace sparfuse {
namespace {

constexpr int kTagsPerExchange = 16;
constexpr int kTagBlocks = 1024;

Traffic Total(const TrafficByLink& by_link) {
  Traffic total;
  for (const Traffic& traffic : by_link) total += traffic;
  return total;
}

}  // namespace

LiveEngine::LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool)
    : StepScheduler(config.layout, config.plan, config.topology, loop.rank()),
      config_(std::move(config)),
      loop_(loop),
      pool_(pool),
      residuals_(layout().numel()),
      velocities_(layout().numel()),
      flat_(layout().numel()),
      averaged_(layout().numel()),
      gradients_(layout().tensors()),
      packed_(layout().tensors()) {
  std::size_t largest = 0;
  for (std::size_t t = 0; t < layout().tensors(); ++t) {
    largest = std::max(largest, layout().tensor(t).numel);
  }
  zeros_ = Buffer<float>(largest);
  loop_.RunBlocking([this](Communicator& world) { return SplitChannels(world); });
  event_thread_ = std::thread([this] { RunEvents(); });
}

LiveEngine::~LiveEngine() {
  {
    std::unique_lock lock(mutex_);
    // Tasks of the communication thread use our buffers. A step that ended well has left none.
    if (communicating_ > 0) loop_.Cancel();
    lanes_changed_.wait(lock, [this] { return communicating_ == 0; });
    stop_ = true;
  }
  event_posted_.notify_all();
  lanes_changed_.notify_all();
  event_thread_.join();
  for (LaneState& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
  try {
    loop_.RunBlocking([this](Communicator& world) { return ReleaseChannels(world); });
  } catch (...) {
    // The loop is ending after an error that its user already has; nothing is left to release.
  }
}

double LiveEngine::Now() const {
  return std::chrono::duration<double>(Clock::now() - step_begin_).count();
}

std::uint64_t LiveEngine::Post(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  return ++posted_;
}

void LiveEngine::PostAndWake(Event event) {
  Post(event);
  event_posted_.notify_one();
}

void LiveEngine::Fail(std::exception_ptr error) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  lanes_changed_.notify_all();
  event_posted_.notify_all();
}

// Precondition: `lock` holds mutex_ and nobody reacts.
template <class Reaction>
void LiveEngine::ReactAlone(std::unique_lock<std::mutex>& lock, Reaction&& reaction) {
  reacting_ = true;
  lock.unlock();
  try {
    reaction();
  } catch (...) {
    Fail(std::current_exception());
  }
  lock.lock();
  reacting_ = false;
  // The event thread may have found its timer due while it could not react to it.
  if (!timers_.empty() && timers_.begin()->first <= Clock::now()) event_posted_.notify_one();
}

bool LiveEngine::ReactToNext(std::unique_lock<std::mutex>& lock) {
  if (events_.empty() || reacting_ || failure_) return false;
  const Event event = events_.front();
  events_.pop_front();
  ReactAlone(lock, [&] { React(event); });
  ++processed_;
  lanes_changed_.notify_all();
  return true;
}

// Lets the event thread have what came in while this thread reacted. The caller holds mutex_.
void LiveEngine::HandOver() {
  if (!events_.empty()) event_posted_.notify_one();
}

void LiveEngine::RunEvents() {
  RaiseThisThread();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (ReactToNext(lock)) continue;
    if (timers_.empty() || failure_) {
      event_posted_.wait(lock);
    } else if (Clock::now() < timers_.begin()->first) {
      event_posted_.wait_until(lock, timers_.begin()->first);
    } else if (reacting_) {
      event_posted_.wait(lock);
    } else {
      const Handle timer = timers_.begin()->second;
      timers_.erase(timers_.begin());
      ReactAlone(lock, [&] { Finish(timer); });
      lanes_changed_.notify_all();
    }
  }
}

void LiveEngine::React(const Event& event) {
  switch (event.kind) {
    case EventKind::kStepBegin: {
      ResetStep();
      exchanges_used_ = 0;
      waits_.clear();
      record_ = {};
      {
        std::lock_guard lock(mutex_);
        timers_.clear();
        complete_ = false;
      }
      config_.strategy->StepBegin(*this);
      return;
    }
    case EventKind::kGradientReady:
      return config_.strategy->GradientReady(*this, event.value);
    case EventKind::kBackwardEnd:
      return config_.strategy->BackwardEnd(*this);
    case EventKind::kDone: {
      const auto handle = static_cast<Handle>(event.value);
      Account(op(handle));
      return Finish(handle);
    }
    case EventKind::kStepTimeout:
      SPARFUSE_THROW(kTimeout, "step " + std::to_string(step_) + " does not end within " +
                                   std::to_string(config_.deadline.count()) +
                                   " ms: " + DescribeUnfinished());
  }
}

void LiveEngine::Account(const Op& done) {
  if (done.kind == OpKind::kSparsify) {
    const auto& selection = *static_cast<const Selection*>(done.attachment);
    record_.tensors_missing += selection.missing;
  } else if (done.kind == OpKind::kExchange) {
    const auto& state = *static_cast<const ExchangeState*>(done.attachment);
    ++record_.exchanges;
    record_.payload_bytes += done.payload_bytes;
    record_.selected += state.elements;
    record_.sent_bytes += state.traffic.bytes_sent;
    record_.received_bytes += state.traffic.bytes_received;
    record_.messages_sent += state.traffic.messages_sent;
  }
}

LiveEngine::Selection& LiveEngine::SelectionOf(const Op& sparsify) {
  Selection& selection = selections_[{sparsify.range.begin, sparsify.range.end}];
  const std::size_t first = layout().PositionOf(sparsify.range.begin);
  const TensorEntry& tensor = layout().tensor(first);
  const std::size_t n = sparsify.range.size();
  const bool whole = sparsify.range == tensor.range();
  if (selection.name.empty()) {
    selection.range = sparsify.range;
    selection.name = whole ? tensor.name : "the unit that begins with " + tensor.name;
    selection.info.id = static_cast<std::uint32_t>(first);
    selection.info.name = selection.name;
    if (whole) selection.info.shape = tensor.shape;
  }
  selection.is_run = config_.runs != nullptr && sparsify.density >= 1;
  if (selection.is_run) {
    selection.slot = {};
    const std::size_t bytes = config_.runs->EncodedBytes(n);
    if (selection.run.size() != bytes) selection.run = Buffer<std::byte>(bytes);
  } else {
    if (!config_.sparsifier)
      SPARFUSE_THROW(kInternal, "the strategy sparsifies, the method has no sparsifier");
    // Equal on all ranks, which have room for one another's payloads: it follows from the density.
    const std::size_t capacity =
        std::max(SlotCapacity(n, sparsify.density, config_.unbounded_count),
                 config_.sparsifier->Count(n, selection.info.shape, sparsify.density));
    if (selection.indices.size() < capacity) {
      selection.indices = Buffer<std::uint32_t>(capacity);
      selection.values = Buffer<float>(capacity);
    }
    selection.slot = {selection.indices.view(), selection.values.view(), capacity, 0};
    if (!selection.state) selection.state = config_.sparsifier->MakeState(n);
  }
  selection.info.step = step_;
  const bool feedback = config_.feedback.kind != FeedbackKind::kNone && tensor.feedback;
  selection.residual = {};
  selection.velocity = {};
  if (feedback) selection.residual = residuals_.Get(sparsify.residual, sparsify.range);
  if (feedback && config_.feedback.kind == FeedbackKind::kMomentum) {
    selection.velocity = velocities_.Get(sparsify.residual, sparsify.range).host();
  }
  const bool within_one = sparsify.range.end <= tensor.range().end;
  if (within_one && !packed_[first]) {
    selection.source =
        gradients_[first].subspan(sparsify.range.begin - tensor.offset, sparsify.range.size());
  } else {
    selection.source = flat_.host().subspan(sparsify.range.begin, sparsify.range.size());
  }
  return selection;
}

void LiveEngine::StartLocal(Handle handle, Op& started) {
  Work work{handle, &started, nullptr};
  if (started.kind == OpKind::kSparsify) {
    if (started.density < 1) started.density = std::min(1.0, started.density * density_factor_);
    started.attachment = &SelectionOf(started);
  }
  if (started.kind == OpKind::kApply) {
    work.exchange = static_cast<ExchangeState*>(op(started.exchange).attachment);
  }
  const Lane lane = started.lane;
  LaneState& state = lanes_[static_cast<std::size_t>(lane)];
  {
    std::lock_guard lock(mutex_);
    state.queue.push_back(work);
    if (lane != Lane::kCompute && !state.thread.joinable()) {
      state.pool = std::make_unique<ThreadPool>(1);
      state.thread = std::thread([this, lane] { RunLane(lane); });
    }
  }
  lanes_changed_.notify_all();
}

void LiveEngine::StartTimerOp(Handle handle, Op& timer) {
  const auto delay =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timer.seconds));
  {
    std::lock_guard lock(mutex_);
    timers_.emplace(Clock::now() + delay, handle);
  }
  event_posted_.notify_one();
}

void LiveEngine::StepComplete() {
  std::lock_guard lock(mutex_);
  complete_ = true;
}

void LiveEngine::StartExchange(Handle handle, Op& started) {
  ExchangeState* state = nullptr;
  if (started.kind == OpKind::kExchange) {
    if (exchanges_used_ == exchanges_.size())
      exchanges_.push_back(std::make_unique<ExchangeState>());
    state = exchanges_[exchanges_used_++].get();
    state->parts.clear();
    for (const Handle part : started.selections) {
      state->parts.push_back(static_cast<const Selection*>(op(part).attachment));
    }
    started.attachment = state;
  }
  {
    std::lock_guard lock(mutex_);
    ++communicating_;
  }
  loop_.Start(
      [this, &started, state](Communicator&) {
        return state == nullptr ? RunNegotiate(started) : RunExchange(started, *state);
      },
      [this, handle](std::exception_ptr error) {
        if (error) {
          Fail(error);
        } else {
          PostAndWake({EventKind::kDone, handle});
        }
        // Under the lock to its end: once the count is 0 the engine may be destroyed.
        std::lock_guard lock(mutex_);
        --communicating_;
        lanes_changed_.notify_all();
      });
}

int LiveEngine::NextTag(const Op& exchange) {
  int& next = next_tag_[static_cast<std::size_t>(exchange.channel)];
  return (next++ % kTagBlocks) * kTagsPerExchange;
}

void LiveEngine::Elements::Reserve(std::size_t count) {
  if (indices.size() >= count) return;
  indices = Buffer<std::uint32_t>(count);
  values = Buffer<float>(count);
}

// Merges the selections into the payload that this rank sends: runs, then what has indices.
void LiveEngine::PreparePayload(Op& exchange, ExchangeState& state) {
  const std::size_t n = exchange.range.size();
  state.capacity = state.elements = state.run_bytes = 0;
  std::size_t with_indices = 0;
  for (const Selection* part : state.parts) {
    state.elements += part->is_run ? part->range.size() : part->slot.count;
    with_indices += part->slot.count;
    state.capacity += part->slot.capacity;
    if (part->is_run) state.run_bytes += part->run.size();
  }
  ExchangeBuffers& buffers = state.buffers;
  const bool headed = IsCoded() && state.capacity > 0;
  const std::size_t indexed_bytes = headed ? EncodedBytesBound(config_.coding, state.capacity, n)
                                           : state.capacity * kSparseElementBytes;
  buffers.element_bytes = headed ? 1 : state.run_bytes > 0 ? sizeof(float) : kSparseElementBytes;
  buffers.capacity_bytes = state.run_bytes + indexed_bytes;
  const std::size_t room = buffers.capacity_bytes * static_cast<std::size_t>(workers());
  if (state.own.size() < buffers.capacity_bytes)
    state.own = Buffer<std::byte>(buffers.capacity_bytes);
  if (state.gathered.size() < room) state.gathered = Buffer<std::byte>(room);

  std::byte* run = state.own.data();
  if (headed) merged_.Reserve(state.capacity);
  auto* const indices = headed
                            ? merged_.indices.data()
                            : reinterpret_cast<std::uint32_t*>(state.own.data() + state.run_bytes);
  auto* const values =
      headed ? merged_.values.data() : reinterpret_cast<float*>(indices + with_indices);
  std::size_t merged = 0;
  for (const Selection* part : state.parts) {
    if (part->is_run) {
      std::memcpy(run, part->run.data(), part->run.size());
      run += part->run.size();
      continue;
    }
    const auto base = static_cast<std::uint32_t>(part->range.begin - exchange.range.begin);
    const auto from = part->slot.indices.host();
    for (std::size_t i = 0; i < part->slot.count; ++i) indices[merged + i] = from[i] + base;
    std::memcpy(values + merged, part->slot.values.data, part->slot.count * sizeof(float));
    merged += part->slot.count;
  }
  exchange.payload_bytes =
      state.run_bytes + (headed
                             ? EncodePayload(config_.coding, {{indices, merged}, {values, merged}},
                                             n, state.own.host().subspan(state.run_bytes))
                             : merged * kSparseElementBytes);
  buffers.own = state.own.host().first(exchange.payload_bytes);
  buffers.gathered = state.gathered.host().first(room);
}

// Dense ranges are reduced where they lie, or side by side in a buffer where there are several.
void LiveEngine::PrepareDense(const Op& exchange, ExchangeState& state) {
  state.elements = exchange.elements();
  if (exchange.parts.size() == 1) {
    state.buffers.dense = flat_.host().subspan(exchange.range.begin, exchange.range.size());
    return;
  }
  if (state.dense.size() < state.elements) state.dense = Buffer<float>(state.elements);
  state.buffers.dense = state.dense.host().first(state.elements);
  std::size_t to = 0;
  for (const Range& part : exchange.parts) {
    std::memcpy(state.dense.data() + to, flat_.data() + part.begin, part.size() * sizeof(float));
    to += part.size();
  }
}

// What did not survive a collective that drops goes back to where it was selected from.
void LiveEngine::TakeBack(const Op& exchange, const ExchangeState& state) {
  const SparsePayload returned = ViewSparsePayload(state.buffers.returned);
  std::size_t taken = 0;
  for (const Selection* part : state.parts) {
    if (part->is_run) continue;
    const Range range{part->range.begin - exchange.range.begin,
                      part->range.end - exchange.range.begin};
    taken += AddReturned(returned, range, part->residual.host());
  }
  if (taken != returned.indices.size()) {
    SPARFUSE_THROW(kInternal, exchange.label + ": " + std::to_string(returned.indices.size()) +
                                  " elements came back, of which " + std::to_string(taken) +
                                  " lie where something was selected");
  }
}

Task LiveEngine::RunExchange(Op& exchange, ExchangeState& state) {
  Communicator& communicator = ChannelOf(exchange);
  const double begin = Now();
  const Traffic before = Total(communicator.traffic());
  const bool sparse = !exchange.selections.empty();
  const Collective& collective = sparse ? *config_.sparse_collective : *config_.dense_collective;
  sparse ? PreparePayload(exchange, state) : PrepareDense(exchange, state);
  state.buffers.returned.clear();
  co_await collective.run(communicator, state.buffers, NextTag(exchange));
  if (!state.buffers.returned.empty()) TakeBack(exchange, state);
  if (collective.native) {
    const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(workers()),
                                           exchange.payload_bytes);
    state.traffic = collective.rounds(sizes, topology()).per_rank[static_cast<std::size_t>(rank())];
  } else {
    state.traffic = Total(communicator.traffic()) - before;
  }
  timeline_.Add({SpanKind::kExchange, std::string(ChannelName(exchange.channel)), exchange.label,
                 begin, Now(), exchange.payload_bytes});
}

Task LiveEngine::RunNegotiate(Op& negotiate) {
  const double begin = Now();
  co_await AllReduceMax(ChannelOf(negotiate), negotiate.values, NextTag(negotiate));
  timeline_.Add({SpanKind::kNegotiate, std::string(ChannelName(negotiate.channel)), "", begin,
                 Now(), negotiate.values.size() * sizeof(std::int64_t)});
}

Task LiveEngine::SplitChannels(Communicator& world) {
  const Topology& where = world.topology();
  const int node = where.NodeOf(world.rank());
  const int local = where.LocalRankOf(world.rank());
  const auto split = [&](Channel channel, int color) {
    channels_[static_cast<std::size_t>(channel)] =
        world.Split(color, world.rank(), config_.deadline);
  };
  split(Channel::kControl, 0);
  split(Channel::kData, 0);
  if (where.ranks_per_node > 1) {
    split(Channel::kIntraNode, node);
    split(Channel::kInterNode, local);
  }
  co_return;
}

Task LiveEngine::ReleaseChannels(Communicator&) {
  for (auto& channel : channels_) channel.reset();
  co_return;
}

void LiveEngine::Replan(Plan plan) {
  SetPlan(std::move(plan));
  // What was remembered of fused ranges is of no use to other ones.
  std::erase_if(selections_, [this](const auto& entry) {
    return entry.second.range != layout().tensor(entry.second.info.id).range();
  });
}

void LiveEngine::SetDensity(double factor) { density_factor_ = factor; }

ThreadPool& LiveEngine::PoolOf(Lane lane) {
  return lane == Lane::kCompute ? pool_ : *lanes_[static_cast<std::size_t>(lane)].pool;
}

void LiveEngine::BeginWait(std::string label) { waits_[std::move(label)] = Now(); }

void LiveEngine::EndWait(const std::string& label) {
  const auto it = waits_.find(label);
  assert(it != waits_.end());
  timeline_.Add({SpanKind::kAlign, "align", label, it->second, Now(), 0});
  waits_.erase(it);
}

SelectCounters LiveEngine::select_counters() const {
  SelectCounters sum;
  for (const LaneState& lane : lanes_) {
    sum.selections += lane.counters.selections;
    sum.overflows += lane.counters.overflows;
    sum.fallbacks += lane.counters.fallbacks;
  }
  return sum;
}

}  // namespace sparfuse
