// Drives a step on LiveEngine's compute lane, at the training loop's calls.
#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/engine/live/live_engine.hpp"

namespace sparfuse {

void LiveEngine::BeginStep(std::uint64_t step, bool verify) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);  // the last step's events may be in use
  }
  if (in_step_) {
    SPARFUSE_THROW(kInternal, "step ", step, " begins, and step ", step_.number,
                   " has not ended: expected EndStep");
  }
  if (step_.anchors && !step_.anchors->begun()) {
    SPARFUSE_THROW(kInternal, "step ", step,
                   " begins without an anchor: expected BeginWindows before");
  }
  in_step_ = true;
  ++steps_;
  finishing_ = false;
  updating_ = true;
  BeginTime();
  step_.Begin(step, verify);
  lanes_->BeginStep();
  Drain(Post({EventKind::kStepBegin, 0}));
}

void LiveEngine::EndForward() {
  lanes_->EndPart(SpanKind::kForward, "");
  lanes_->SetInterrupted(SpanKind::kBackward);
}

void LiveEngine::AnnounceGradient(std::size_t tensor, std::span<const float> gradient) {
  assert(gradient.size() == layout().tensor(tensor).numel);
  step_.gradients[tensor] = gradient;
  lanes_->EndPart(SpanKind::kBackward, layout().tensor(tensor).name);
  lanes_->Announce(tensor);
  lanes_->SetInterrupted({});
  Drain(Post({EventKind::kGradientReady, tensor}));
  lanes_->SetInterrupted(SpanKind::kBackward);
}

void LiveEngine::AverageInto(std::size_t tensor, std::span<float> to) {
  assert(config_.averages_at_end);
  assert(to.empty() || to.size() == layout().tensor(tensor).numel);
  step_.averages[tensor] = to;
}

void LiveEngine::EndBackward() {
  lanes_->EndPart(SpanKind::kBackward, "end");
  lanes_->SetInterrupted({});
  for (std::size_t t = 0; t < layout().tensors(); ++t) {
    if (!step_.gradients[t].empty()) continue;
    step_.gradients[t] = {step_.zeros.data(), layout().tensor(t).numel};
    lanes_->Announce(t);
    Drain(Post({EventKind::kGradientReady, t}));
  }
  Drain(Post({EventKind::kBackwardEnd, 0}));
}

bool LiveEngine::CheckedAll() const {
  return std::ranges::all_of(step_.checked, [](const std::atomic<bool>& each) {
    return each.load(std::memory_order_acquire);
  });
}

// Precondition: the lane has work; `lock` holds mutex_. Returns the sequence number of the event
// that reports the work as done.
std::uint64_t LiveEngine::WorkOnNext(std::unique_lock<std::mutex>& lock) {
  HandOver();
  lock.unlock();
  const Handle done = lanes_->Work();
  const std::uint64_t sequence = Post({EventKind::kDone, done});
  lock.lock();
  return sequence;
}

// Works on the compute lane until the event `sequence` has had its reaction and nothing is queued.
// A strategy's requests to this lane are thus done before the announcement returns.
void LiveEngine::Drain(std::uint64_t sequence) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (lanes_->HasWork()) {
      sequence = WorkOnNext(lock);
    } else if (processed_ >= sequence) {
      HandOver();
      return;
    } else if (!ReactToNext(lock)) {
      changed_.wait(lock);
    }
  }
}

void LiveEngine::WorkUntil(const bool& done) {
  constexpr std::chrono::milliseconds kLook{100};
  auto deadline = Clock::now() + config_.deadline;
  if (config_.local_steps) deadline += Lateness();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (lanes_->HasWork()) {
      WorkOnNext(lock);
    } else if (done) {
      break;
    } else if (ReactToNext(lock)) {
      continue;
    } else if (config_.while_waiting && Clock::now() + kLook < deadline) {
      if (changed_.wait_for(lock, kLook) != std::cv_status::timeout) continue;
      lock.unlock();
      config_.while_waiting();
      lock.lock();
    } else if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      lock.unlock();
      Drain(Post({EventKind::kStepTimeout, 0}));  // throws, with the unfinished operations
      lock.lock();
    }
  }
  HandOver();
}

void LiveEngine::FinishStep() {
  finishing_ = true;
  lanes_->SetInterrupted(SpanKind::kExposed);
  Post({EventKind::kAwaited, 0});
  WorkUntil(applied_);
  lanes_->SetInterrupted({});
}

// Returns the possible lateness of another rank: ranks wait for one another once in a window.
std::chrono::milliseconds LiveEngine::Lateness() const {
  const double window = static_cast<double>(config_.local_steps->every) * slowest_seconds_;
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * window));
}

void LiveEngine::Synchronise() {
  if (!config_.local_steps) return;
  EndUpdate();
  loop_.Allow(Lateness());
  lanes_->SetInterrupted(SpanKind::kExposed);
  Drain(Post({EventKind::kUpdated, 0}));
  WorkUntil(complete_);
  lanes_->SetInterrupted({});
}

StepRecord LiveEngine::FinishWindows() {
  if (in_step_) {
    SPARFUSE_THROW(kInternal, "step ", step_.number,
                   " has not ended: expected EndStep before FinishWindows");
  }
  if (!config_.delays) (void)anchors();
  in_step_ = true;
  updating_ = false;
  BeginTime();
  step_.Begin(step_.number, false);
  lanes_->BeginStep();
  lanes_->SetInterrupted(SpanKind::kExposed);
  Drain(Post({EventKind::kFinish, 0}));
  WorkUntil(complete_);
  lanes_->SetInterrupted({});
  return EndStep();
}

StepRecord LiveEngine::EndStep() {
  EndUpdate();
  if (finishing_) WorkUntil(complete_);
  staging_->EndStep();
  selections_.Settle();
  const double step_seconds = lanes_->EndStep();
  EndTime();
  slowest_seconds_ = std::max(slowest_seconds_, step_seconds);
  in_step_ = false;
  loaded_ = {};
  StepRecord record = record_;
  const Timeline& spans = step_.timeline;
  const std::string_view compute = LaneName(Lane::kCompute);
  record.step_seconds = step_seconds;
  record.forward_seconds = spans.Total(SpanKind::kForward, compute);
  record.backward_seconds = spans.Total(SpanKind::kBackward, compute);
  record.sparsify_seconds =
      spans.Total(SpanKind::kPack, compute) + spans.Total(SpanKind::kSparsify, compute);
  record.exposed_communication_seconds = spans.Total(SpanKind::kExposed, compute);
  record.decompress_seconds = spans.Total(SpanKind::kDecompress, compute);
  record.update_seconds = spans.Total(SpanKind::kUpdate, compute);
  record.outer_seconds = spans.Total(SpanKind::kOuter, compute);
  record.align_wait_seconds = spans.Total(SpanKind::kAlign);
  return record;
}

DeviceSpan<const float> LiveEngine::AveragedOnDevice(std::size_t tensor) const {
  const Range range = layout().tensor(tensor).range();
  if (config_.local_steps) return {step_.gradients[tensor].data(), range.size(), compute_stream()};
  if (step_.averages[tensor].data() != nullptr)
    return {step_.averages[tensor].data(), range.size(), compute_stream()};
  return {step_.averaged.data() + range.begin, range.size(), compute_stream()};
}

}  // namespace sparfuse
