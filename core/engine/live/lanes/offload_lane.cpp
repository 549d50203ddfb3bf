#include "core/engine/live/lanes/offload_lane.hpp"

#include <algorithm>
#include <iterator>

namespace sparfuse {

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

OffloadLane::OffloadLane(const LaneSetup& setup, gpu::EventPool& events)
    : lane_events_(setup.events),
      events_(events),
      work_(setup, Lane::kHost, pool_),
      ring_(setup.config.device, setup.step.layout.largest_tensor()) {}

void OffloadLane::Start(LiveOp& sparsify, const gpu::GpuEvent* ready) {
  Queued next{&sparsify, ready, nullptr};
  {
    std::lock_guard lock(mutex_);
    // Otherwise earlier selections wait for room in the ring.
    if (queue_.empty() || queue_.back().slot != nullptr) CopyToRing(next);
    queue_.push_back(next);
  }
  thread_.Add([this] { SelectNext(); });
}

// Precondition: mutex_ is held.
void OffloadLane::CopyToRing(Queued& queued) {
  queued.slot = ring_.TryCopy(queued.op->selection->source, queued.ready, events_);
}

void OffloadLane::SelectNext() {
  if (lane_events_.Failed()) return;
  try {
    Queued next;
    {
      std::lock_guard lock(mutex_);
      next = queue_.front();
      queue_.pop_front();
    }
    next.slot->copied->Wait();
    Selection& selection = *next.op->selection;
    selection.source = {next.slot->data.data(), selection.source.size, {}};
    work_.Do(*next.op);
    {
      std::lock_guard lock(mutex_);
      ring_.Release(*next.slot);
      const auto waiting = std::find_if(queue_.begin(), queue_.end(),
                                        [](const Queued& queued) { return !queued.slot; });
      if (waiting != queue_.end()) CopyToRing(*waiting);
    }
    lane_events_.Done(next.op->handle);
  } catch (...) {
    lane_events_.Fail(std::current_exception());
  }
}

}  // namespace sparfuse
