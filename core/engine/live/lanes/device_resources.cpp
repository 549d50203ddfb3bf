#include "core/engine/live/lanes/device_resources.hpp"

#include <string>
#include <utility>

namespace sparfuse {

const gpu::GpuEvent& DeviceTimeline::BeginStep(gpu::CompletionThread& completions) {
  std::lock_guard lock(mutex_);
  recorded_.clear();
  interrupted_.reset();
  host_time_.reset();
  error_ = nullptr;
  step_begin_ = since_ = &events_.Record(compute_);
  completions.Add(*step_begin_, [this](std::exception_ptr error) {
    const Clock::time_point now = now_();  // Resolve may hold the lock until the step's end
    {
      std::lock_guard told(mutex_);
      host_time_ = now;
      error_ = std::move(error);
    }
    tied_.notify_all();
  });
  return *step_begin_;
}

void DeviceTimeline::Mark() {
  std::lock_guard lock(mutex_);
  since_ = &events_.Record(compute_);
}

const gpu::GpuEvent& DeviceTimeline::EndPart(SpanKind kind, std::string label) {
  std::lock_guard lock(mutex_);
  const gpu::GpuEvent& end = events_.Record(compute_);
  recorded_.push_back(
      {{kind, std::string(LaneName(Lane::kCompute)), std::move(label), 0, 0, 0}, since_, &end});
  since_ = &end;
  return end;
}

void DeviceTimeline::SetInterrupted(std::optional<SpanKind> kind) {
  std::lock_guard lock(mutex_);
  interrupted_ = kind;
}

const gpu::GpuEvent& DeviceTimeline::Begin(const Stream& stream) {
  std::lock_guard lock(mutex_);
  const gpu::GpuEvent& begin = events_.Record(stream);
  if (OfCompute(stream) && interrupted_) {
    recorded_.push_back(
        {{*interrupted_, std::string(LaneName(Lane::kCompute)), "", 0, 0, 0}, since_, &begin});
  }
  return begin;
}

const gpu::GpuEvent& DeviceTimeline::End(const Stream& stream, const gpu::GpuEvent& begin,
                                         Span span, const std::uint64_t& bytes) {
  std::lock_guard lock(mutex_);
  const gpu::GpuEvent& end = events_.Record(stream);
  recorded_.push_back({std::move(span), &begin, &end, &bytes});
  if (OfCompute(stream)) since_ = &end;
  return end;
}

double DeviceTimeline::Resolve(Clock::time_point host_begin, Timeline& timeline) {
  std::unique_lock lock(mutex_);
  since_->Wait();
  tied_.wait(lock, [this] { return host_time_.has_value(); });
  if (error_) std::rethrow_exception(error_);
  timeline.Shift(-std::chrono::duration<double>(*host_time_ - host_begin).count());
  for (Recorded& recorded : recorded_) {
    recorded.span.begin_seconds = recorded.begin->SecondsSince(*step_begin_);
    recorded.span.end_seconds = recorded.end->SecondsSince(*step_begin_);
    if (recorded.bytes != nullptr) recorded.span.bytes = *recorded.bytes;
    timeline.Add(std::move(recorded.span));
  }
  recorded_.clear();
  return since_->SecondsSince(*step_begin_);
}

}  // namespace sparfuse
