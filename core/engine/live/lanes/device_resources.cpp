#include "core/engine/live/lanes/device_resources.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "core/engine/engine.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {

namespace {

template <class T>
void Copy(const Stream& stream, std::vector<T>& to, const T* from, std::size_t count) {
  to.resize(count);
  gpu::CopyAsync(stream, to.data(), from, count * sizeof(T));
}

}  // namespace

void OpReports::Clear(const Stream& stream) {
  for (const Block& block : blocks_) {
    gpu::FillAsync(stream, block.on_device.data(), 0, kBlock * sizeof(OpReport));
  }
}

OpReports::Block& OpReports::Of(Handle handle) {
  const std::size_t block = (handle - 1) / kBlock;
  while (blocks_.size() <= block) {
    blocks_.push_back({Buffer<OpReport>(kBlock, device_, "the reports of operations"),
                       gpu::PinnedBuffer<OpReport>(kBlock, device_, "the reports of operations")});
  }
  return blocks_[block];
}

OpReport* OpReports::OnDevice(Handle handle) {
  return Of(handle).on_device.data() + (handle - 1) % kBlock;
}

void OpReports::Fetch(const Stream& stream, Handle handle) {
  gpu::CopyAsync(stream, Of(handle).on_host.data() + (handle - 1) % kBlock, OnDevice(handle),
                 sizeof(OpReport));
}

bool TouchedRanges::EraseOverlapping(Range range, bool itself) {
  auto it = entries_.lower_bound(range.begin);
  if (it != entries_.begin() && std::prev(it)->second.end > range.begin) --it;
  bool erased = false;
  while (it != entries_.end() && it->first < range.end) {
    if (!itself && it->first == range.begin && it->second.end == range.end) {
      ++it;
      continue;
    }
    it = entries_.erase(it);
    erased = true;
  }
  return erased;
}

std::uint32_t* TouchedRanges::Of(Range range, const Stream& stream) {
  if (changing_) return nullptr;
  if (EraseOverlapping(range, false)) {  // of earlier steps: ranges of one step are disjoint
    changing_ = true;
    return nullptr;
  }
  Entry& entry = entries_[range.begin];
  if (entry.bits.size() == 0) {
    entry.end = range.end;
    entry.bits = Buffer<std::uint32_t>(TouchedWords(range.size()), device_, "the touched elements");
    // The touched words are unknown, so all are marked.
    gpu::FillAsync(stream, entry.bits.data(), 0xff, entry.bits.size() * sizeof(std::uint32_t));
  }
  return entry.bits.data();
}

void TouchedRanges::Forget(Range range) { EraseOverlapping(range, true); }

void TouchedRanges::Restart() {
  entries_.clear();
  changing_ = false;
}

SelectionCopies::SelectionCopies(const Stream& stream, const Selection& selection) {
  Copy<float>(stream, source_, selection.source.data, selection.source.size);
  Copy<float>(stream, residual_, selection.residual.data, selection.residual.size);
}

void SelectionCopies::CopyAfter(const Stream& stream, const Selection& selection) {
  Copy<float>(stream, unsent_, selection.residual.data, selection.residual.size);
  if (selection.whole) {
    Copy<std::byte>(stream, encoded_, selection.encoded.data(), selection.encoded.size());
    return;
  }
  Copy<std::uint32_t>(stream, indices_, selection.slot.indices.data, selection.slot.capacity);
  Copy<float>(stream, values_, selection.slot.values.data, selection.slot.capacity);
}

void SelectionCopies::Check(SelectionChecks& checks, const Selection& selection) const {
  std::vector<float> x = source_;
  for (std::size_t i = 0; i < residual_.size(); ++i) x[i] += residual_[i];
  if (selection.whole) return checks.CheckWhole(x, encoded_, unsent_);
  const std::size_t count = selection.slot.count;
  checks.CheckSelected(x, selection,
                       {std::span(indices_).first(count), std::span(values_).first(count)},
                       residual_.empty() ? source_ : unsent_);
}

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
