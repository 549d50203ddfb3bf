// Runs on the host the selections that a strategy requests on the host lane of a device.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "core/base/thread_pool.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/live/lanes/host_work.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "core/engine/live/lanes/lanes.hpp"

namespace sparfuse {

// Pinned copies of gradients for selection on the host. One slot is filled while the lane works on
// the other; if none is free, the next gradient waits.
class OffloadRing {
 public:
  struct Slot {
    gpu::PinnedBuffer<float> data;
    const gpu::GpuEvent* copied = nullptr;
    bool taken = false;
  };

  // largest: elements of the largest tensor. A larger range makes its slot larger, once.
  OffloadRing(Device device, std::size_t largest) : device_(device), largest_(largest) {}

  // Starts to copy `from`, which is valid after `ready` (null: now). Returns null if no slot is
  // free.
  Slot* TryCopy(DeviceSpan<const float> from, const gpu::GpuEvent* ready, gpu::EventPool& events);
  void Release(Slot& slot) { slot.taken = false; }

 private:
  Device device_;
  std::size_t largest_;
  Slot slots_[2];
  gpu::GpuStream copies_;  // made at first use
};

// The host lane of a device: a thread that selects from copies in an OffloadRing.
class OffloadLane {
 public:
  // events: outlives this object, as do all objects referenced by `setup`.
  OffloadLane(const LaneSetup& setup, gpu::EventPool& events);

  // Call in a reaction. ready: when the source of `sparsify` is valid; null: it is valid already.
  void Start(LiveOp& sparsify, const gpu::GpuEvent* ready);
  void Stop() noexcept { thread_.Stop(); }
  const SelectCounters& counters() const noexcept { return work_.counters(); }

 private:
  struct Queued {
    LiveOp* op = nullptr;
    const gpu::GpuEvent* ready = nullptr;
    OffloadRing::Slot* slot = nullptr;  // null: it waits for room in the ring
  };
  void CopyToRing(Queued& queued);
  void SelectNext();

  LaneEvents& lane_events_;
  gpu::EventPool& events_;
  ThreadPool pool_{1};
  HostWork work_;
  std::mutex mutex_;  // guards ring and queue
  OffloadRing ring_;
  std::deque<Queued> queue_;
  LaneThread thread_;
};

}  // namespace sparfuse
