// The compute lane of LiveEngine, as the training loop drives it, and the threads of lanes.
#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/error.hpp"
#include "core/engine/live/live_engine.hpp"

namespace sparfuse {

void LiveEngine::BeginStep(std::uint64_t step, bool verify) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);  // the last step's events may be in use
  }
  if (in_step_) {
    SPARFUSE_THROW(kInternal, "step " + std::to_string(step) + " begins, and step " +
                                  std::to_string(step_) + " has not ended: expected EndStep");
  }
  in_step_ = true;
  step_ = step;
  verify_ = verify;
  finishing_ = false;
  timeline_.Clear();
  std::fill(gradients_.begin(), gradients_.end(), std::span<const float>());
  std::fill(packed_.begin(), packed_.end(), std::uint8_t{0});
  step_begin_ = Clock::now();
  compute_since_ = 0;
  if (device_) device_->BeginStep();
  Drain(Post({EventKind::kStepBegin, 0}));
}

void LiveEngine::BeginForward() { BeginComputeSpan(); }

void LiveEngine::EndForward() {
  AddComputeSpan(SpanKind::kForward, "");
  if (device_) device_->timeline.SetInterrupted(SpanKind::kBackward);
}

void LiveEngine::EndMicroStep() { AddComputeSpan(SpanKind::kBackward, "micro-step"); }

void LiveEngine::BeginComputeSpan() {
  if (device_) return device_->timeline.Mark();
  compute_since_ = Now();
}

void LiveEngine::AddComputeSpan(SpanKind kind, std::string label) {
  if (device_) {
    device_->timeline.EndPart(kind, std::move(label));
    return;
  }
  const double now = Now();
  timeline_.Add(
      {kind, std::string(LaneName(Lane::kCompute)), std::move(label), compute_since_, now, 0});
  compute_since_ = now;
}

void LiveEngine::AnnounceGradient(std::size_t tensor, std::span<const float> gradient) {
  assert(gradient.size() == layout().tensor(tensor).numel);
  gradients_[tensor] = gradient;
  if (!device_) {
    AddComputeSpan(SpanKind::kBackward, layout().tensor(tensor).name);
    return Drain(Post({EventKind::kGradientReady, tensor}));
  }
  DeviceTimeline& timeline = device_->timeline;
  device_->announced[tensor] = &timeline.EndPart(SpanKind::kBackward, layout().tensor(tensor).name);
  timeline.SetInterrupted({});
  Drain(Post({EventKind::kGradientReady, tensor}));
  timeline.SetInterrupted(SpanKind::kBackward);
}

void LiveEngine::EndBackward() {
  const gpu::GpuEvent* announced = nullptr;
  if (device_) {
    announced = &device_->timeline.EndPart(SpanKind::kBackward, "end");
    device_->timeline.SetInterrupted({});
  } else {
    AddComputeSpan(SpanKind::kBackward, "end");
  }
  for (std::size_t t = 0; t < layout().tensors(); ++t) {
    if (!gradients_[t].empty()) continue;
    gradients_[t] = {zeros_.data(), layout().tensor(t).numel};
    if (device_) device_->announced[t] = announced;
    Drain(Post({EventKind::kGradientReady, t}));
  }
  Drain(Post({EventKind::kBackwardEnd, 0}));
}

// Precondition: the compute queue is not empty; `lock` holds mutex_. Returns the sequence of the
// event that says the work is done.
std::uint64_t LiveEngine::ExecuteNext(std::unique_lock<std::mutex>& lock, bool waited) {
  std::deque<Work>& queue = lanes_[static_cast<std::size_t>(Lane::kCompute)].queue;
  const Work work = queue.front();
  queue.pop_front();
  HandOver();
  lock.unlock();
  if (waited) AddComputeSpan(SpanKind::kExposed, "");
  Execute(Lane::kCompute, work);
  const std::uint64_t sequence = Post({EventKind::kDone, work.handle});
  lock.lock();
  return sequence;
}

// Works on the compute lane until the event `sequence` has been reacted to and nothing is queued:
// what a strategy asks of this lane in a reaction is done before the announcement returns.
void LiveEngine::Drain(std::uint64_t sequence) {
  const LaneState& lane = lanes_[static_cast<std::size_t>(Lane::kCompute)];
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (!lane.queue.empty()) {
      sequence = ExecuteNext(lock, false);
    } else if (processed_ >= sequence) {
      HandOver();
      return;
    } else if (!ReactToNext(lock)) {
      lanes_changed_.wait(lock);
    }
  }
}

void LiveEngine::WorkUntil(const bool& done) {
  const auto deadline = Clock::now() + config_.deadline;
  const LaneState& lane = lanes_[static_cast<std::size_t>(Lane::kCompute)];
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (!lane.queue.empty()) {
      ExecuteNext(lock, true);
    } else if (done) {
      break;
    } else if (ReactToNext(lock)) {
      continue;
    } else if (lanes_changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      lock.unlock();
      Drain(Post({EventKind::kStepTimeout, 0}));  // a reaction knows what is unfinished; throws
      lock.lock();
    }
  }
  HandOver();
}

void LiveEngine::FinishStep() {
  finishing_ = true;
  if (device_) {
    // What begins now begins after a wait.
    device_->timeline.SetInterrupted(SpanKind::kExposed);
    WorkUntil(settled_);
    device_->timeline.SetInterrupted({});
    return;
  }
  compute_since_ = Now();
  WorkUntil(complete_);
}

void LiveEngine::BeginUpdate() { BeginComputeSpan(); }

StepRecord LiveEngine::EndStep() {
  AddComputeSpan(SpanKind::kUpdate, "");
  double step_seconds = 0;
  if (device_) {
    if (finishing_) WorkUntil(complete_);
    staging_->EndStep();
    step_seconds = device_->EndStep(step_begin_, timeline_);
  } else {
    step_seconds = Now();
  }
  in_step_ = false;
  StepRecord record = record_;
  const std::string_view compute = LaneName(Lane::kCompute);
  record.step_seconds = step_seconds;
  record.forward_seconds = timeline_.Total(SpanKind::kForward, compute);
  record.backward_seconds = timeline_.Total(SpanKind::kBackward, compute);
  record.sparsify_seconds =
      timeline_.Total(SpanKind::kPack, compute) + timeline_.Total(SpanKind::kSparsify, compute);
  record.exposed_communication_seconds = timeline_.Total(SpanKind::kExposed, compute);
  record.decompress_seconds = timeline_.Total(SpanKind::kDecompress, compute);
  record.update_seconds = timeline_.Total(SpanKind::kUpdate, compute);
  record.align_wait_seconds = timeline_.Total(SpanKind::kAlign);
  return record;
}

DeviceSpan<const float> LiveEngine::AveragedOnDevice(std::size_t tensor) const {
  const Range range = layout().tensor(tensor).range();
  return {averaged_.data() + range.begin, range.size(), compute_stream()};
}

void LiveEngine::RunLane(Lane which) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  std::unique_lock lock(mutex_);
  for (;;) {
    lanes_changed_.wait(lock, [&] { return stop_ || (!lane.queue.empty() && !failure_); });
    if (stop_) return;
    const Work work = lane.queue.front();
    lane.queue.pop_front();
    lock.unlock();
    try {
      if (device_) TakeOffloaded(work);
      Execute(which, work);
      if (device_) GiveBackOffloaded(work);
      PostAndWake({EventKind::kDone, work.handle});
    } catch (...) {
      Fail(std::current_exception());
    }
    lock.lock();
  }
}

void LiveEngine::Execute(Lane lane, const Work& work) {
  const double begin = Now();
  SpanKind kind = SpanKind::kPack;
  std::string label;
  switch (work.op->kind) {
    case OpKind::kPack:
      DoPack(*work.op);
      label = layout().tensor(work.op->tensor).name;
      break;
    case OpKind::kSparsify:
      kind = SpanKind::kSparsify;
      DoSparsify(lane, *work.op);
      label = static_cast<const Selection*>(work.op->attachment)->name;
      break;
    default:
      assert(work.op->kind == OpKind::kApply);
      kind = SpanKind::kDecompress;
      DoApply(lane, *work.op, *work.exchange);
      break;
  }
  const double end = Now();
  timeline_.Add(
      {kind, std::string(LaneName(lane)), std::move(label), begin, end, work.op->payload_bytes});
  if (lane == Lane::kCompute) compute_since_ = end;
}

}  // namespace sparfuse
