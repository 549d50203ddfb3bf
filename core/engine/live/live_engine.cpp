// Runs reactions and events; the compute lane is in live_training_step.cpp, the communication
// thread in live_exchange.cpp.
#include "core/engine/live/live_engine.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

// Returns the bytes of the elements that a collective chose itself, without an earlier payload.
std::uint64_t ChosenBytes(const LiveConfig& config, const LiveOp& exchange) {
  if (!exchange.op->sparse()) return 0;
  const CollectiveTraits traits = config.sparse_collective->traits();
  return traits.selects && !traits.by_tensor ? exchange.exchange->elements * kSparseElementBytes
                                             : 0;
}

}  // namespace

LiveEngine::LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool)
    : StepScheduler(config.layout, config.plan, config.topology, loop.rank(),
                    config.exchange_host_seconds),
      config_(std::move(config)),
      loop_(loop),
      step_(layout(), config_),
      selections_(config_, step_),
      checks_(config_, layout()),
      jobs_(loop),
      lanes_(MakeLanes({config_, rank(), workers(), step_, checks_, pool, *this})),
      staging_(lanes_->MakeStaging({config_.coding, static_cast<std::size_t>(workers()),
                                    step_.flat.view(Stream{config_.device, nullptr}), step_.places},
                                   loop_)) {
  if (config_.device.kind != DeviceKind::kHost && config_.coding.of_selections() &&
      config_.coding.indices != IndexCoding::kU12) {
    SPARFUSE_THROW(
        kUnsupported,
        "filters of indices and polynomials of values are made in host memory, but the "
        "gradients lie on a device; expected device \"cpu\", or payload_indices \"u32\", "
        "\"delta\" or \"u12\", and no fitted values");
  }
  if (config_.local_steps && config_.local_steps->inner != InnerState::kKeep &&
      config_.inner_arrays == 0) {
    SPARFUSE_THROW(
        kConfig,
        "inner_state: nothing is known that the inner optimizer keeps from step to step; "
        "expected \"keep\", or an optimizer with a momentum");
  }
  if (config_.device.kind != DeviceKind::kHost && config_.feedback.rule != nullptr) {
    SPARFUSE_THROW(kUnsupported,
                   "feedback from outside works in host memory, but the gradients lie on a device; "
                   "expected device \"cpu\"");
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
    // Tasks of the communication thread use our buffers. A step that ended well has no tasks left.
    if (communicating_ > 0) loop_.Cancel();
    changed_.wait(lock, [this] { return communicating_ == 0; });
    stop_ = true;
  }
  event_posted_.notify_all();
  event_thread_.join();
  jobs_.Stop();
  lanes_->Stop();  // threads and streams use our buffers, and the caller may own the compute stream
  staging_.reset();
  lanes_.reset();
  ReleaseChannels();
}

// Runs on the communication thread, the only one that may call the transport.
void LiveEngine::ReleaseChannels() noexcept {
  try {
    loop_.RunBlocking([this](Communicator&) -> Task {
      for (auto& channel : channels_) channel.reset();
      co_return;
    });
  } catch (...) {
    // The loop is ending after an error that its user already has, so nothing needs release.
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
  // Takes the lock: the compute lane may have checked the queue and not yet begun its wait.
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

// Precondition: `lock` holds mutex_ and no other thread reacts.
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
  // The event thread may have found its timer due while it could not react.
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

void LiveEngine::BeginTime() {
  {
    std::lock_guard lock(mutex_);
    if (!pause_) return;
    paused_ += Clock::now() - *std::exchange(pause_, std::nullopt);
  }
  event_posted_.notify_one();
}

void LiveEngine::EndTime() {
  if (!config_.pauses_between_steps) return;
  std::lock_guard lock(mutex_);
  pause_ = Clock::now();
}

bool LiveEngine::HoldBack(Handle handle, ExchangeState& state) {
  {
    std::lock_guard lock(mutex_);
    const Clock::duration end = state.began_in_steps + (state.ended - state.began);
    if (TimeInSteps(Clock::now()) >= end) return false;
    held_back_.insert({end, {handle, &state}});
  }
  event_posted_.notify_one();
  return true;
}

LiveEngine::Clock::time_point LiveEngine::NextDue() const {
  auto due = timers_.empty() ? Clock::time_point::max() : timers_.begin()->first;
  if (!held_back_.empty() && !pause_)
    due = std::min(due, Clock::time_point(held_back_.begin()->first + paused_));
  return due;
}

void LiveEngine::ReportHeldBack() {
  const auto now = Clock::now();
  while (!held_back_.empty() && held_back_.begin()->first <= TimeInSteps(now)) {
    const HeldBack over = held_back_.begin()->second;
    held_back_.erase(held_back_.begin());
    over.state->ended = now;
    events_.push_back({EventKind::kDone, over.handle});
    ++posted_;
  }
}

void LiveEngine::RunEvents() {
  RaiseThisThread();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    ReportHeldBack();
    if (ReactToNext(lock)) continue;
    const Clock::time_point due = NextDue();
    if (due == Clock::time_point::max() || failure_) {
      event_posted_.wait(lock);
    } else if (Clock::now() < due) {
      event_posted_.wait_until(lock, due);
    } else if (timers_.empty() || due < timers_.begin()->first) {
      continue;  // reports an exchange
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
    case EventKind::kStepBegin:
      BeginStepReaction();
      return config_.strategy->StepBegin(*this);
    case EventKind::kGradientReady:
      return config_.strategy->GradientReady(*this, event.value);
    case EventKind::kBackwardEnd:
      return config_.strategy->BackwardEnd(*this);
    case EventKind::kAwaited:
      return AwaitEnd();
    case EventKind::kUpdated:
      return AskAfterUpdate(&Strategy::Updated);
    case EventKind::kFinish:
      BeginStepReaction();
      if (config_.local_steps || !average_comes()) Apply({.own = Range{0, layout().numel()}});
      return AskAfterUpdate(&Strategy::Finish);
    case EventKind::kDone: {
      const auto handle = static_cast<Handle>(event.value);
      lanes_->Take(Live(handle));
      Account(Live(handle));
      return Finish(handle);
    }
    case EventKind::kStepTimeout:
      SPARFUSE_THROW(kTimeout, "step ", step_.number, " does not end within ",
                     config_.deadline.count(), " ms: ", DescribeUnfinished());
  }
}

void LiveEngine::AskAfterUpdate(void (Strategy::*ask)(Engine&)) {
  Set(complete_, false);
  StepScheduler::Synchronise([&] { (*config_.strategy.*ask)(*this); });
}

void LiveEngine::BeginStepReaction() {
  ResetStep();
  live_.clear();
  for (auto it = in_background_.begin(); it != in_background_.end();) {
    if (InBackground(it->first)) {
      ++it;
      continue;
    }
    unused_.push_back(std::move(it->second.state));
    it = in_background_.erase(it);
  }
  selections_.BeginStep();
  exchanges_used_ = 0;
  waits_.clear();
  record_ = {};
  std::lock_guard lock(mutex_);
  timers_.clear();
  applied_ = complete_ = false;
}

// An exchange in the background counts in the step that takes it, since its end is not
// reproducible.
void LiveEngine::Account(const LiveOp& done) {
  if (done.selection != nullptr) {
    record_.tensors_missing += done.selection->missing;
  } else if (const auto* exchange = done.op->If<ExchangeRequest>()) {
    if (!exchange->background) AccountExchange(done);
  } else if (done.op->summed >= kFirstInBackground) {
    const LiveOp& taken = Live(done.op->summed);
    const ExchangeState& state = *taken.exchange;
    AccountExchange(taken);
    step_.timeline.Add({SpanKind::kExchange, std::string(ChannelName(Channel::kBackground)),
                        taken.op->label(), std::max(0.0, step_.At(state.began)),
                        std::max(0.0, step_.At(state.ended)), taken.op->payload_bytes});
  }
}

void LiveEngine::AccountExchange(const LiveOp& done) {
  const ExchangeState& state = *done.exchange;
  ++record_.exchanges;
  record_.payload_bytes += done.op->payload_bytes + ChosenBytes(config_, done);
  record_.selected += static_cast<std::uint64_t>(done.op->exchange().counts) * state.elements;
  record_.sent_bytes += state.traffic.bytes_sent;
  record_.received_bytes += state.traffic.bytes_received;
  record_.messages_sent += state.traffic.messages_sent;
  record_.served += state.buffers.served;
  record_.returned += state.buffers.returned.size() / kSparseElementBytes;
  if (done.op->sparse() && config_.sparse_collective->traits().sums) {
    record_.summed += state.buffers.sums.size();
    for (const auto payload : state.buffers.payloads) {
      record_.summed += payload.size() / kSparseElementBytes;
    }
  }
}

LiveOp& LiveEngine::Live(Handle handle) {
  if (handle >= kFirstInBackground) return in_background_[handle].live;
  if (live_.size() < handle) live_.resize(handle);
  return live_[handle - 1];
}

std::vector<const ExchangeState*> LiveEngine::Behind(const Op& started) {
  std::vector<const ExchangeState*> behind;
  for (const Handle exchange : started.exchanges) behind.push_back(Live(exchange).exchange);
  return behind;
}

void LiveEngine::StartLocal(Handle handle, Op& started) {
  LiveOp& live = Live(handle) = {handle, &started, nullptr, nullptr, Behind(started)};
  if (const auto* sparsify = started.If<SparsifyRequest>()) {
    live.selection = &selections_.Prepare(*sparsify, DensityNow(sparsify->density),
                                          lanes_->OnStream(started) ? config_.device : Device{});
  }
  if (started.summed != 0) live.exchange = Live(started.summed).exchange;
  lanes_->Start(live);
}

void LiveEngine::StartTimerOp(Handle handle, double seconds) {
  const auto delay =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    std::lock_guard lock(mutex_);
    timers_.emplace(Clock::now() + delay, handle);
  }
  event_posted_.notify_one();
}

void LiveEngine::StartExchange(Handle handle, Op& started) {
  ExchangeState* const state =
      started.If<ExchangeRequest>() ? &PrepareExchange(handle, started) : nullptr;
  Live(handle) = {handle, &started, nullptr, state, {}};
  {
    std::lock_guard lock(mutex_);
    ++communicating_;
  }
  loop_.Start(
      [this, &started, state](Communicator&) {
        return state == nullptr ? RunNegotiate(started) : RunExchange(*state);
      },
      [this, handle, state](std::exception_ptr error) {
        const bool background = handle >= kFirstInBackground && state != nullptr;
        if (error) {
          Fail(error);
        } else if (!background || !HoldBack(handle, *state)) {
          Done(handle);
        }
        // Holds the lock to the end: once the count is 0 the engine may be destroyed.
        std::lock_guard lock(mutex_);
        --communicating_;
        changed_.notify_all();
      });
}

ExchangeState& LiveEngine::StateOf(Handle handle) {
  if (handle >= kFirstInBackground) {
    auto& state = in_background_[handle].state;
    if (unused_.empty()) unused_.push_back(std::make_unique<ExchangeState>());
    state = std::move(unused_.back());
    unused_.pop_back();
    return *state;
  }
  if (exchanges_used_ == exchanges_.size()) exchanges_.push_back(std::make_unique<ExchangeState>());
  return *exchanges_[exchanges_used_++];
}

ExchangeState& LiveEngine::PrepareExchange(Handle handle, Op& exchange) {
  ExchangeState& state = StateOf(handle);
  state.op = &exchange;
  state.behind = Behind(exchange);
  state.buffers.shape = {exchange.range().size(),
                         0,
                         exchange.step,
                         {},
                         static_cast<std::size_t>(exchange.exchange().owner())};
  state.buffers.rounded = {};
  state.buffers.part_begins.clear();
  state.buffers.part_bytes.clear();
  for (const Range& shard : exchange.exchange().shards()) {
    const std::size_t begin = exchange.range().begin;
    if (state.buffers.part_begins.empty()) state.buffers.part_begins.push_back(0);
    state.buffers.part_begins.push_back(static_cast<std::uint32_t>(shard.end - begin));
  }
  if (const Halves* halves = exchange.exchange().halves()) {
    state.buffers.rounded =
        selections_.RoundedOf(exchange.range(), halves->residual, exchange.label());
  }
  if (exchange.sparse()) PreparePayload(exchange, state);
  return state;
}

void LiveEngine::PreparePayload(const Op& exchange, ExchangeState& state) {
  const ExchangeRequest& request = exchange.exchange();
  const Range range = exchange.range();
  ExchangeBuffers& buffers = state.buffers;
  Payload& payload = state.payload;
  payload.parts.clear();
  payload.forwarded = nullptr;
  payload.shared_capacity.reset();
  payload.sums_of.reset();
  payload.whole_of.reset();
  for (const Handle part : request.selections()) {
    payload.parts.push_back(Live(part).selection);
    buffers.shape.kept += Live(part).selection->kept;
  }
  if (request.forwarded() != 0) payload.forwarded = Live(request.forwarded()).exchange;
  if (request.shared() != nullptr) {
    SharedRange shared = *request.shared();
    shared.density = DensityNow(shared.density);
    payload.shared_capacity = selections_.Capacity(shared);
    payload.sums_of = {range};
    buffers.shape.kept = selections_.Kept(range, shared.density);
    if (config_.dense_quantizer != nullptr && shared.density >= 1) {
      payload.shared_capacity = 0;
      payload.sums_of->clear();
      payload.whole_of.emplace();
      for (std::size_t member = 0; member < shared.owned.size(); ++member) {
        const Range& part = shared.owned[member];
        payload.whole_of->push_back(
            {part, config_.dense_quantizer->EncodedBytes(part.size()), member});
      }
    }
  }
  if (std::holds_alternative<ToOwners>(request.pattern)) {
    for (const Selection* part : payload.parts) {
      buffers.part_begins.push_back(static_cast<std::uint32_t>(part->range.begin - range.begin));
      if (part->whole) buffers.part_bytes.push_back(part->encoded.size());
    }
    buffers.part_begins.push_back(static_cast<std::uint32_t>(range.size()));
    const std::size_t own = PartOf(request);
    const bool whole = !buffers.part_bytes.empty();
    payload.sums_of.emplace();
    payload.whole_of.emplace();
    if (own < payload.parts.size()) {
      const Selection& part = *payload.parts[own];
      if (whole) {
        payload.whole_of->push_back({part.range, part.encoded.size(), {}});
      } else {
        payload.sums_of->push_back(part.range);
      }
    }
  }
  Remember(exchange, buffers);
}

// Gives the collective its state for the exchange's range, which a chain may sum by several ones.
void LiveEngine::Remember(const Op& exchange, ExchangeBuffers& buffers) {
  const Collective& collective =
      CollectiveOf(exchange.exchange(), config_.dense_collective, config_.sparse_collective);
  const Range range = exchange.range();
  const auto [entry, made] =
      range_memory_.try_emplace({&collective, exchange.channel, range.begin, range.end});
  RangeMemory& memory = entry->second;
  if (made && collective.traits().by_tensor) {
    memory.tensors = TensorsOfExchange(layout(), range);
  }
  buffers.shape.tensors = memory.tensors;
  if (made) {
    memory.state = collective.MakeState(buffers.shape, TopologyOf(exchange.channel));
    memory.place = Concat(collective.descriptor().name, " on ", ChannelName(exchange.channel), ", ",
                          range.begin, " to ", range.end);
    if (memory.state) LoadInto(*memory.state, range, memory.place);
  }
  buffers.state = memory.state.get();
}

void LiveEngine::SaveState(EngineState& to) {
  to.remembered.clear();
  selections_.Save(to);
  SaveCollectives(to);
}

void LiveEngine::SaveCollectives(EngineState& to) const {
  bool any = false;
  for (const auto& [place, numbers] : loaded_.remembered)
    to.remembered.insert_or_assign(place, numbers);
  for (const auto& [key, memory] : range_memory_) {
    if (!memory.state) continue;
    StateNumbers numbers;
    memory.state->Exchange(numbers);
    std::vector<double> taken = numbers.Take();
    if (!taken.empty()) to.remembered.insert_or_assign(memory.place, std::move(taken));
    if (!memory.state->begun()) continue;
    any = true;
    for (const auto& [name, values] : memory.state->Kept()) {
      std::vector<float>& all = to.averages[std::string(name)];
      all.resize(layout().numel());
      std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(std::get<2>(key)));
    }
  }
  if (!any) to.averages = loaded_.averages;  // which no step has taken up yet
}

void LiveEngine::LoadState(const EngineState& from) {
  selections_.Load(from);
  LoadCollectives(from);
}

void LiveEngine::LoadCollectives(const EngineState& from) {
  std::erase_if(range_memory_, [](const auto& entry) {  // the next step makes them anew
    return entry.second.state != nullptr;
  });
  loaded_.averages = from.averages;
  loaded_.remembered = from.remembered;
}

void LiveEngine::BeginUndoable() {
  if (config_.device.kind != DeviceKind::kHost) return SaveState(undo_);
  undo_.remembered.clear();
  selections_.SaveRemembered(undo_.remembered);
  SaveCollectives(undo_);
  selections_.BeginUndoable();
}

void LiveEngine::Undo() {
  if (config_.device.kind != DeviceKind::kHost) return LoadState(undo_);
  selections_.Undo();
  selections_.LoadRemembered(undo_.remembered);
  LoadCollectives(undo_);
}

void LiveEngine::LoadInto(CollectiveState& state, Range range, const std::string& place) const {
  if (const auto found = loaded_.remembered.find(place); found != loaded_.remembered.end()) {
    StateNumbers numbers(found->second);
    state.Exchange(numbers);
    numbers.RequireEnd();
  }
  const CollectiveState::Arrays kept = state.Kept();
  for (const auto& [name, values] : kept) {
    const auto all = loaded_.averages.find(name);
    if (all == loaded_.averages.end()) return;
    std::ranges::copy(std::span(all->second).subspan(range.begin, range.size()), values.begin());
  }
  if (!kept.empty()) state.GoOn();
}

void LiveEngine::Replan(Plan plan) {
  SetPlan(std::move(plan));
  lanes_->Replan();
  selections_.ForgetFusedRanges();
  range_memory_.clear();
  loaded_ = {};
}

Anchors& LiveEngine::anchors() {
  if (!step_.anchors) {
    SPARFUSE_THROW(kInternal, "parameters are given to a method without local steps");
  }
  return *step_.anchors;
}

void LiveEngine::BeginWindows(ParameterView parameters, std::vector<ParameterView> inner) {
  const bool needed = config_.local_steps && config_.local_steps->inner != InnerState::kKeep;
  if (needed && inner.size() != config_.inner_arrays) {
    SPARFUSE_THROW(kInternal, inner.size(), " arrays of the inner optimizer's state: expected ",
                   config_.inner_arrays);
  }
  anchors().Begin(std::move(parameters), compute_stream(), std::move(inner));
}

std::size_t LiveEngine::method_memory_bytes() const {
  if (!step_.anchors) return 0;
  return step_.anchors->bytes() + step_.flat.size() * sizeof(float);
}

bool LiveEngine::KeepsMass() const {
  const bool sparse =
      config_.sparsifier != nullptr ||
      (config_.sparse_collective != nullptr && config_.sparse_collective->traits().selects);
  return sparse && !config_.local_steps && config_.feedback.kind == FeedbackKind::kResidual &&
         config_.feedback.decay == 1 && config_.feedback.rate == 1 && !config_.strategy_loses &&
         config_.sparse_collective->traits().mass != Conservation::kLost;
}

void LiveEngine::EndWait(const std::string& label) {
  const auto it = waits_.find(label);
  assert(it != waits_.end());
  step_.timeline.Add({SpanKind::kAlign, "align", label, it->second, step_.Now(), 0});
  waits_.erase(it);
}

}  // namespace sparfuse
