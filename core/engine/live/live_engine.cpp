// Runs reactions and events; the compute lane is in live_training_step.cpp, the communication
// thread in live_exchange.cpp.
#include "core/engine/live/live_engine.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/error.hpp"
#include "core/engine/exchanged_tensors.hpp"
#include "core/transport/priority.hpp"

namespace sparfuse {

LiveEngine::LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool)
    : StepScheduler(config.layout, config.plan, config.topology, loop.rank(),
                    config.exchange_host_seconds),
      config_(std::move(config)),
      loop_(loop),
      step_(layout(), config_.device),
      selections_(config_, step_),
      checks_(config_, layout()),
      jobs_(loop),
      lanes_(MakeLanes({config_, rank(), workers(), step_, checks_, pool, *this})),
      staging_(lanes_->MakeStaging({config_.coding, static_cast<std::size_t>(workers()),
                                    step_.flat.view(Stream{config_.device, nullptr})},
                                   loop_)) {
  if (config_.device.kind != DeviceKind::kHost && config_.coding.of_selections()) {
    SPARFUSE_THROW(kUnsupported,
                   "filters of indices and polynomials of values are made in host memory, and the "
                   "gradients lie on a device; expected device \"cpu\", or payload_indices \"u32\" "
                   "or \"delta\" and payload_values \"f32\" or \"f16\"");
  }
  try {
    loop_.RunBlocking([this](Communicator& world) { return SplitChannels(world); });
    event_thread_ = std::thread([this] { RunEvents(); });
  } catch (...) {
    ReleaseChannels();
    throw;
  }
}

LiveEngine::~LiveEngine() {
  {
    std::unique_lock lock(mutex_);
    // Tasks of the communication thread use our buffers. A step that ended well has left none.
    if (communicating_ > 0) loop_.Cancel();
    changed_.wait(lock, [this] { return communicating_ == 0; });
    stop_ = true;
  }
  event_posted_.notify_all();
  event_thread_.join();
  jobs_.Stop();
  lanes_->Stop();  // threads and streams use our buffers, and the compute stream may be another's
  staging_.reset();
  lanes_.reset();
  ReleaseChannels();
}

// On the communication thread, the only one that may call the transport.
void LiveEngine::ReleaseChannels() noexcept {
  try {
    loop_.RunBlocking([this](Communicator&) -> Task {
      for (auto& channel : channels_) channel.reset();
      co_return;
    });
  } catch (...) {
    // The loop is ending after an error that its user already has; nothing is left to release.
  }
}

std::uint64_t LiveEngine::Post(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  return ++posted_;
}

void LiveEngine::Done(Handle handle) {
  Post({EventKind::kDone, handle});
  event_posted_.notify_one();
}

void LiveEngine::ComputeWorkQueued() {
  // Under the lock: the compute lane may be between its look at the queue and its wait.
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool LiveEngine::Failed() {
  std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void LiveEngine::Fail(std::exception_ptr error) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  changed_.notify_all();
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
  changed_.notify_all();
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
      changed_.notify_all();
    }
  }
}

void LiveEngine::React(const Event& event) {
  switch (event.kind) {
    case EventKind::kStepBegin: {
      ResetStep();
      selections_.BeginStep();
      exchanges_used_ = 0;
      waits_.clear();
      record_ = {};
      {
        std::lock_guard lock(mutex_);
        timers_.clear();
        applied_ = complete_ = false;
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
      lanes_->Take(handle, op(handle));
      Account(op(handle));
      return Finish(handle);
    }
    case EventKind::kStepTimeout:
      SPARFUSE_THROW(kTimeout, "step " + std::to_string(step_.number) + " does not end within " +
                                   std::to_string(config_.deadline.count()) +
                                   " ms: " + DescribeUnfinished());
  }
}

void LiveEngine::Account(const Op& done) {
  if (done.kind == OpKind::kSparsify) {
    record_.tensors_missing += done.selection->missing;
  } else if (done.kind == OpKind::kExchange) {
    const ExchangeState& state = *done.exchange_state;
    ++record_.exchanges;
    record_.payload_bytes += done.payload_bytes;
    record_.selected += static_cast<std::uint64_t>(done.counts) * state.elements;
    record_.sent_bytes += state.traffic.bytes_sent;
    record_.received_bytes += state.traffic.bytes_received;
    record_.messages_sent += state.traffic.messages_sent;
    record_.served += state.buffers.served;
    record_.returned += state.buffers.returned.size() / kSparseElementBytes;
    if (done.sparse && config_.sparse_collective->traits().sums) {
      record_.summed += state.buffers.sums.size();
      for (const auto payload : state.buffers.payloads) {
        record_.summed += payload.size() / kSparseElementBytes;
      }
    }
  }
}

void LiveEngine::StartLocal(Handle handle, Op& started) {
  if (started.kind == OpKind::kSparsify) {
    started.density = DensityNow(started.density);
    started.selection =
        &selections_.Prepare(started, lanes_->OnStream(started) ? config_.device : Device{});
  }
  if (started.exchange != 0) started.exchange_state = op(started.exchange).exchange_state;
  for (const Handle exchange : started.exchanges) {
    started.behind.push_back(op(exchange).exchange_state);
  }
  lanes_->Start(handle, started);
}

bool LiveEngine::StreamsOrder(const Op& first, const Op& second) const {
  return lanes_->OnStream(first) && lanes_->OnStream(second);
}

// What the compute stream is given after an Apply of its own comes after it.
bool LiveEngine::OrderedByStream(const Op& apply) const {
  return lanes_->OnStream(apply) && apply.lane == Lane::kCompute;
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

void LiveEngine::StepApplied() {
  std::lock_guard lock(mutex_);
  applied_ = true;
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
    ExchangeShape shape{started.range.size(), 0, step_.number};
    for (const Handle part : started.selections) {
      state->parts.push_back(op(part).selection);
      shape.kept += op(part).selection->kept;
    }
    state->sparse = started.sparse;
    state->shared_capacity.reset();
    if (started.shared) {
      started.shared->density = DensityNow(started.shared->density);
      state->shared_capacity = selections_.Capacity(*started.shared);
      shape.kept = selections_.Kept(started.range, started.shared->density);
    }
    state->forwarded = nullptr;
    if (started.forwarded != 0) {
      const Op& brought = op(started.forwarded);
      state->forwarded = brought.exchange_state;
      state->forwarded_base = static_cast<std::uint32_t>(brought.range.begin - started.range.begin);
    }
    shape.owner = static_cast<std::size_t>(started.owner);
    state->buffers.rounded = {};
    if (started.f16) state->buffers.rounded = selections_.RoundedOf(started);
    state->owned.reset();
    state->buffers.part_begins.clear();
    if (started.sparse && started.pattern == Pattern::kReduceScatter) OwnParts(started, *state);
    state->buffers.shape = shape;
    if (started.sparse) Remember(started, state->buffers);
    for (const Handle before : started.exchanges) {
      started.behind.push_back(op(before).exchange_state);
    }
    started.exchange_state = state;
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
          Done(handle);
        }
        // Under the lock to its end: once the count is 0 the engine may be destroyed.
        std::lock_guard lock(mutex_);
        --communicating_;
        changed_.notify_all();
      });
}

// Part j is that of the j-th member from the first owner on.
void LiveEngine::OwnParts(const Op& exchange, ExchangeState& state) {
  for (const Selection* part : state.parts) {
    state.buffers.part_begins.push_back(
        static_cast<std::uint32_t>(part->range.begin - exchange.range.begin));
  }
  state.buffers.part_begins.push_back(static_cast<std::uint32_t>(exchange.range.size()));
  const std::size_t own = PartOf(exchange);
  if (own < state.parts.size()) state.owned = state.parts[own]->range;
}

// Gives the collective what it remembers of the exchange's range. A chain may sum a range by
// several collectives.
void LiveEngine::Remember(const Op& exchange, ExchangeBuffers& buffers) {
  const Collective& collective =
      CollectiveOf(exchange, config_.dense_collective, config_.sparse_collective);
  const auto [entry, made] = range_memory_.try_emplace(
      {&collective, exchange.channel, exchange.range.begin, exchange.range.end});
  RangeMemory& memory = entry->second;
  if (made && collective.traits().by_tensor) {
    memory.tensors = TensorsOfExchange(layout(), exchange.range);
  }
  buffers.shape.tensors = memory.tensors;
  if (made) memory.state = collective.MakeState(buffers.shape, TopologyOf(exchange.channel));
  buffers.state = memory.state.get();
}

void LiveEngine::Replan(Plan plan) {
  SetPlan(std::move(plan));
  lanes_->Replan();
  selections_.ForgetFusedRanges();
  range_memory_.clear();
}

void LiveEngine::SetDensity(double factor) { density_factor_ = factor; }

double LiveEngine::DensityNow(double planned) const {
  return planned < 1 ? std::min(1.0, planned * density_factor_) : planned;
}

bool LiveEngine::KeepsMass() const {
  const bool sparse =
      config_.sparsifier != nullptr ||
      (config_.sparse_collective != nullptr && config_.sparse_collective->traits().selects);
  return sparse && config_.feedback.kind == FeedbackKind::kResidual &&
         config_.feedback.decay == 1 && !config_.strategy_loses &&
         config_.sparse_collective->traits().mass != Conservation::kLost;
}

void LiveEngine::BeginWait(std::string label) { waits_[std::move(label)] = step_.Now(); }

void LiveEngine::EndWait(const std::string& label) {
  const auto it = waits_.find(label);
  assert(it != waits_.end());
  step_.timeline.Add({SpanKind::kAlign, "align", label, it->second, step_.Now(), 0});
  waits_.erase(it);
}

}  // namespace sparfuse
