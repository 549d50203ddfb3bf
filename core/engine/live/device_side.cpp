#include "core/engine/live/device_side.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/payload/accumulate_device.hpp"

namespace sparfuse {

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

OffloadRing::Slot* OffloadRing::TryCopy(DeviceSpan<const float> from, const gpu::GpuEvent* ready,
                                        gpu::EventPool& events) {
  Slot* const free = std::find_if(std::begin(slots_), std::end(slots_),
                                  [](const Slot& slot) { return !slot.taken; });
  if (free == std::end(slots_)) return nullptr;
  if (copies_.view().native == nullptr) copies_ = gpu::GpuStream(device_);
  if (free->data.size() < from.size) {
    free->data = {};
    free->data = gpu::PinnedBuffer<float>(std::max(largest_, from.size), device_,
                                          "gradients that are offloaded to the host");
  }
  if (ready != nullptr) gpu::StreamWait(copies_.view(), *ready);
  gpu::CopyAsync(copies_.view(), free->data.data(), from.data, from.size * sizeof(float));
  free->copied = &events.Record(copies_.view());
  free->taken = true;
  return free;
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
  if (EraseOverlapping(range, false)) {  // of earlier steps: in a step ranges are disjoint
    changing_ = true;
    return nullptr;
  }
  Entry& entry = entries_[range.begin];
  if (entry.bits.size() == 0) {
    entry.end = range.end;
    entry.bits = Buffer<std::uint32_t>(TouchedWords(range.size()), device_, "what is touched");
    // What is there is not known.
    gpu::FillAsync(stream, entry.bits.data(), 0xff, entry.bits.size() * sizeof(std::uint32_t));
  }
  return entry.bits.data();
}

void TouchedRanges::Forget(Range range) { EraseOverlapping(range, true); }

void TouchedRanges::Restart() {
  entries_.clear();
  changing_ = false;
}

namespace {

std::size_t LargestTensor(const GradientLayout& layout) {
  std::size_t largest = 0;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    largest = std::max(largest, layout.tensor(t).numel);
  }
  return largest;
}

}  // namespace

DeviceSide::DeviceSide(Device where, const Stream& compute_stream, const GradientLayout& layout)
    : device(where),
      events(where),
      reports(where),
      ring(where, LargestTensor(layout)),
      touched(where),
      timeline(events),
      compute(where),
      side(where),
      announced(layout.tensors()) {
  if (compute_stream.device == where) {
    compute.stream = compute_stream;
  } else if (compute_stream.device.kind == DeviceKind::kHost) {
    compute.own = gpu::GpuStream(where);
    compute.stream = compute.own.view();
  } else {
    SPARFUSE_THROW(kConfig, "the compute stream is of another device than the gradients");
  }
  side.own = gpu::GpuStream(where, gpu::Priority::kHigh);
  side.stream = side.own.view();
  for (DeviceLane* lane : {&compute, &side}) {
    lane->reports = gpu::GpuStream(where, gpu::Priority::kHigh);
  }
  timeline.SetCompute(compute.stream);
}

Enqueued& DeviceSide::Of(Handle handle) {
  if (enqueued.size() < handle) enqueued.resize(handle);
  return enqueued[handle - 1];
}

const gpu::GpuEvent& DeviceSide::FetchReport(DeviceLane& lane, Handle handle) {
  gpu::StreamWait(lane.reports.view(), *Of(handle).end);
  reports.Fetch(lane.reports.view(), handle);
  return events.Record(lane.reports.view());
}

void DeviceSide::BeginStep() {
  events.Reset();
  enqueued.clear();
  std::fill(announced.begin(), announced.end(), nullptr);
  reports.Clear(compute.stream);
  gpu::StreamWait(side.stream, timeline.BeginStep(compute.completions));
}

double DeviceSide::EndStep(DeviceTimeline::Clock::time_point host_begin, Timeline& spans) {
  const double seconds = timeline.Resolve(host_begin, spans);
  // What is told of an event still refers to it for a moment.
  compute.completions.Drain();
  side.completions.Drain();
  return seconds;
}

void DeviceSide::Quiet() noexcept {
  for (const DeviceLane* lane : {&compute, &side}) {
    gpu::Quiesce(lane->stream);
    gpu::Quiesce(lane->reports.view());
  }
}

}  // namespace sparfuse
