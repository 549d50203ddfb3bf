// Runs on the host the selections that a strategy requests on the host lane of a device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>

#include "core/base/thread_pool.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/live/lanes/host_work.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "core/engine/live/lanes/lanes.hpp"

namespace sparfuse {

// The host lane of a device: a thread that selects from pinned copies of gradients. One copy is
// made while the lane works on another; if no memory is free, the next gradient waits.
class OffloadLane {
 public:
  // events: outlives this object, as do all objects referenced by `setup`.
  OffloadLane(const LaneSetup& setup, gpu::EventPool& events)
      : lane_events_(setup.events),
        events_(events),
        device_(setup.config.device),
        largest_(setup.step.layout.largest_tensor()),
        work_(setup, Lane::kHost, pool_) {}

  // Call in a reaction. ready: when the source of `sparsify` is valid; null: it is valid already.
  void Start(LiveOp& sparsify, const gpu::GpuEvent* ready) {
    Queued next{&sparsify, ready};
    {
      std::lock_guard lock(mutex_);
      // Otherwise earlier selections wait for memory.
      if (queue_.empty() || queue_.back().copy != nullptr) StartCopy(next);
      queue_.push_back(next);
    }
    thread_.Add([this] { SelectNext(); });
  }
  void Stop() noexcept { thread_.Stop(); }
  const SelectCounters& counters() const noexcept { return work_.counters(); }

 private:
  struct Copy {
    gpu::PinnedBuffer<float> data;
    const gpu::GpuEvent* made = nullptr;
    bool taken = false;
  };
  struct Queued {
    LiveOp* op = nullptr;
    const gpu::GpuEvent* ready = nullptr;
    Copy* copy = nullptr;  // null: it waits for memory
  };

  // Does nothing if no memory is free. Precondition: mutex_ is held.
  void StartCopy(Queued& queued) {
    const auto free = std::ranges::find(copies_, false, &Copy::taken);
    if (free == copies_.end()) return;
    const DeviceSpan<const float>& from = queued.op->selection->source;
    if (stream_.view().native == nullptr) stream_ = gpu::GpuStream(device_);
    if (free->data.size() < from.size) {  // of a larger range than any tensor: once
      free->data = {};
      free->data = gpu::PinnedBuffer<float>(std::max(largest_, from.size), device_,
                                            "gradients that are offloaded to the host");
    }
    if (queued.ready != nullptr) gpu::StreamWait(stream_.view(), *queued.ready);
    gpu::CopyAsync(stream_.view(), free->data.data(), from.data, from.size * sizeof(float));
    free->made = &events_.Record(stream_.view());
    free->taken = true;
    queued.copy = &*free;
  }

  void SelectNext() {
    if (lane_events_.Failed()) return;
    try {
      Queued next;
      {
        std::lock_guard lock(mutex_);
        next = queue_.front();
        queue_.pop_front();
      }
      next.copy->made->Wait();
      Selection& selection = *next.op->selection;
      selection.source = {next.copy->data.data(), selection.source.size, {}};
      work_.Do(*next.op);
      {
        std::lock_guard lock(mutex_);
        next.copy->taken = false;
        const auto waiting = std::ranges::find(queue_, nullptr, &Queued::copy);
        if (waiting != queue_.end()) StartCopy(*waiting);
      }
      lane_events_.Done(next.op->handle);
    } catch (...) {
      lane_events_.Fail(std::current_exception());
    }
  }

  LaneEvents& lane_events_;
  gpu::EventPool& events_;
  const Device device_;
  const std::size_t largest_;  // elements of the largest tensor
  ThreadPool pool_{1};
  HostWork work_;
  std::mutex mutex_;  // guards the members below, except the thread
  std::array<Copy, 2> copies_;
  gpu::GpuStream stream_;  // made at first use
  std::deque<Queued> queue_;
  LaneThread thread_;
};

}  // namespace sparfuse
