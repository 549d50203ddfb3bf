// Reactions; the lanes are in live_lanes.cpp, those of a device in live_device.cpp, the
// communication thread is in live_exchange.cpp.
#include "core/engine/live/live_engine.hpp"

#include <algorithm>
#include <cassert>

#include "core/transport/priority.hpp"

namespace sparfuse {

LiveEngine::LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool)
    : StepScheduler(config.layout, config.plan, config.topology, loop.rank()),
      config_(std::move(config)),
      loop_(loop),
      pool_(pool),
      residuals_(layout(), config_.device),
      velocities_(layout(), config_.device),
      flat_(layout().numel(), config_.device, "the packed gradient"),
      averaged_(layout().numel(), config_.device, "the averaged gradient"),
      gradients_(layout().tensors()),
      packed_(layout().tensors()) {
  std::size_t largest = 0;
  for (std::size_t t = 0; t < layout().tensors(); ++t) {
    largest = std::max(largest, layout().tensor(t).numel);
  }
  zeros_ = Buffer<float>(largest, config_.device, "the gradient of tensors that have none");
  StagingSetup staging{config_.coding, static_cast<std::size_t>(workers()),
                       flat_.view(Stream{config_.device, nullptr})};
  if (config_.device.kind == DeviceKind::kHost) {
    staging_ = MakeHostStaging(staging);
  } else {
    device_ = std::make_unique<DeviceSide>(config_.device, config_.compute, layout());
    staging_ = MakeDeviceStaging(staging, loop_, device_->events);
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
    lanes_changed_.wait(lock, [this] { return communicating_ == 0; });
    stop_ = true;
  }
  event_posted_.notify_all();
  lanes_changed_.notify_all();
  event_thread_.join();
  for (LaneState& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
  // So do streams, of which the compute stream may be another's.
  if (device_) device_->Quiet();
  staging_.reset();
  device_.reset();
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
      for (auto& [key, selection] : selections_) selection.selected = false;
      waits_.clear();
      record_ = {};
      {
        std::lock_guard lock(mutex_);
        timers_.clear();
        settled_ = complete_ = false;
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
      if (OnStream(op(handle))) TakeEnqueued(handle, op(handle));
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

Selection& LiveEngine::SelectionOf(const Op& sparsify) {
  Selection& selection =
      selections_[{sparsify.range.begin, sparsify.range.end, std::string(sparsify.residual)}];
  const std::size_t first = layout().PositionOf(sparsify.range.begin);
  const TensorEntry& tensor = layout().tensor(first);
  const std::size_t n = sparsify.range.size();
  const bool whole = sparsify.range == tensor.range();
  const Device where = OnStream(sparsify) ? config_.device : Device{};
  if (!selection.name.empty() && selection.device != where) {
    selection = {};  // what is remembered of it starts again in the other place
  }
  if (selection.name.empty()) {
    selection.range = sparsify.range;
    selection.device = where;
    selection.name = whole ? tensor.name : "the unit that begins with " + tensor.name;
    selection.info.id = static_cast<std::uint32_t>(first);
    selection.info.name = selection.name;
    if (whole) selection.info.shape = tensor.shape;
  }
  // An exchange may still read what the first one selected.
  if (selection.selected) {
    SPARFUSE_THROW(kInternal, selection.name + " is selected twice in step " +
                                  std::to_string(step_) + " for the residual \"" +
                                  std::string(sparsify.residual) + "\"");
  }
  selection.selected = true;
  PrepareSlot(sparsify, selection);
  selection.info.step = step_;
  const bool feedback = config_.feedback.kind != FeedbackKind::kNone && tensor.feedback;
  selection.residual = selection.velocity = {};
  if (feedback) selection.residual = residuals_.Get(sparsify.residual, sparsify.range, where);
  if (feedback && config_.feedback.kind == FeedbackKind::kMomentum) {
    selection.velocity = velocities_.Get(sparsify.residual, sparsify.range, where);
  }
  const float* const source =
      ReadsGradient(sparsify) ? gradients_[first].data() + (sparsify.range.begin - tensor.offset)
                              : flat_.data() + sparsify.range.begin;
  selection.source = {source, n, Stream{config_.device, nullptr}};
  return selection;
}

// It lies within one tensor that has not been packed.
bool LiveEngine::ReadsGradient(const Op& sparsify) const {
  const std::size_t tensor = layout().PositionOf(sparsify.range.begin);
  return sparsify.range.end <= layout().tensor(tensor).range().end && packed_[tensor] == 0;
}

void LiveEngine::PrepareSlot(const Op& sparsify, Selection& selection) {
  const std::size_t n = sparsify.range.size();
  const std::string what = "the selection of " + selection.name;
  selection.is_run = config_.runs != nullptr && sparsify.density >= 1;
  if (selection.is_run) {
    selection.slot = {};
    const std::size_t bytes = config_.runs->EncodedBytes(n);
    if (selection.run.size() != bytes) {
      selection.run = Buffer<std::byte>(bytes, selection.device, what);
    }
    return;
  }
  if (!config_.sparsifier)
    SPARFUSE_THROW(kInternal, "the strategy sparsifies, the method has no sparsifier");
  // Equal on all ranks, which have room for one another's payloads: it follows from the density.
  const std::size_t capacity =
      std::max(SlotCapacity(n, sparsify.density, config_.unbounded_count),
               config_.sparsifier->Count(n, selection.info.shape, sparsify.density));
  if (selection.indices.size() < capacity) {
    selection.indices = Buffer<std::uint32_t>(capacity, selection.device, what);
    selection.values = Buffer<float>(capacity, selection.device, what);
  }
  const Stream stream{selection.device, nullptr};
  selection.slot = {selection.indices.view(stream), selection.values.view(stream), capacity, 0};
  if (selection.state) return;
  selection.state = selection.device.kind == DeviceKind::kHost
                        ? config_.sparsifier->MakeState(n)
                        : config_.sparsifier->MakeDeviceState(n, selection.device);
}

void LiveEngine::StartLocal(Handle handle, Op& started) {
  Work work{handle, &started};
  if (started.kind == OpKind::kSparsify) {
    if (started.density < 1) started.density = std::min(1.0, started.density * density_factor_);
    started.attachment = &SelectionOf(started);
  }
  if (started.kind == OpKind::kApply) {
    work.exchange = static_cast<ExchangeState*>(op(started.exchange).attachment);
  }
  if (OnStream(started)) return Enqueue(handle, started);
  if (device_ && ReadsGradient(started)) {
    work.ready = device_->announced[layout().PositionOf(started.range.begin)];
  }
  const Lane lane = started.lane;
  LaneState& state = lanes_[static_cast<std::size_t>(lane)];
  {
    std::lock_guard lock(mutex_);
    if (device_ && (state.queue.empty() || state.queue.back().offloaded != nullptr)) {
      StartOffload(work);  // else those before it wait for room in the ring
    }
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

void LiveEngine::StepSettled() {
  std::lock_guard lock(mutex_);
  settled_ = true;
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

void LiveEngine::Replan(Plan plan) {
  SetPlan(std::move(plan));
  if (device_) device_->touched.Restart();
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
