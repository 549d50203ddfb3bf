// What LiveEngine has beside it where gradients lie on a device: streams for its lanes, events,
// words that the device leaves for the host, and the ring of what is selected on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/device/completion_thread.hpp"
#include "core/device/event_pool.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/live/device_timeline.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// What an operation leaves on the device, and its copy on the host. All zero at first.
struct OpReport {
  SlotReport slot;            // kSparsify; of a pack not_finite
  std::uint64_t missing = 0;  // tensors of which nothing was selected
  std::uint64_t fault = 0;    // kApply: as AccumulateSparseOnDevice's
  float clip = 0;             // kSparsify: what clipping multiplies the gradient with
};

// One for each operation of a step. Grown in blocks, and used again by the next step.
class OpReports {
 public:
  explicit OpReports(Device device) : device_(device) {}

  // Zeros what the last step used, in the order of `stream`.
  void Clear(const Stream& stream);
  OpReport* OnDevice(Handle handle);
  // To `onhost`, in the order of `stream`.
  void Fetch(const Stream& stream, Handle handle);
  const OpReport& OnHost(Handle handle) { return Of(handle).on_host[(handle - 1) % kBlock]; }

 private:
  static constexpr std::size_t kBlock = 256;
  struct Block {
    Buffer<OpReport> on_device;
    gpu::PinnedBuffer<OpReport> on_host;
  };
  Block& Of(Handle handle);

  Device device_;
  std::vector<Block> blocks_;
};

// Pinned copies of gradients for selection on the host. A slot is filled while the one before it is
// worked on; where none is free the next gradient waits.
class OffloadRing {
 public:
  struct Slot {
    gpu::PinnedBuffer<float> data;
    const gpu::GpuEvent* copied = nullptr;
    bool taken = false;
  };

  // largest: elements of the largest tensor. A larger range makes its slot larger, once.
  OffloadRing(Device device, std::size_t largest) : device_(device), largest_(largest) {}

  // Starts to copy `from`, which is valid after `ready` (null: now); null when no slot is free.
  Slot* TryCopy(DeviceSpan<const float> from, const gpu::GpuEvent* ready, gpu::EventPool& events);
  void Release(Slot& slot) { slot.taken = false; }

 private:
  Device device_;
  std::size_t largest_;
  Slot slots_[2];
  gpu::GpuStream copies_;  // made at first use
};

// Which parts of the averaged gradient hold something, so that sparse sums need not clear all of
// it (AccumulateSparseOnDevice's `touched`), for as long as the ranges stay the same.
class TouchedRanges {
 public:
  explicit TouchedRanges(Device device) : device_(device) {}
  // The bits of a range that is summed into; null: it must be written whole.
  std::uint32_t* Of(Range range, const Stream& stream);
  // Something else is written there.
  void Forget(Range range);
  // Ranges may change from here on.
  void Restart();

 private:
  struct Entry {
    std::size_t end = 0;
    Buffer<std::uint32_t> bits;
  };
  // Removes what overlaps, but for the range itself; true when there was something.
  bool EraseOverlapping(Range range, bool itself);

  Device device_;
  std::map<std::size_t, Entry> entries_;  // by begin
  bool changing_ = false;                 // ranges differ from step to step
};

// kCompute and kSide.
struct DeviceLane {
  explicit DeviceLane(Device device) : workspace(device) {}

  Stream stream;
  DeviceWorkspace workspace;
  Workspace staging;     // of what is done on the host after all
  Buffer<float> growth;  // of velocities, with nesterov
  gpu::GpuStream own;
  // Of copies of reports: between two kernels of `stream` a copy to the host would leave it idle.
  gpu::GpuStream reports;
  gpu::CompletionThread completions;
};

// In a step with `verify`: what was selected from, and what was left of it.
struct SelectionCopies {
  std::vector<float> source, residual;  // before
  std::vector<float> unsent;            // after
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::vector<std::byte> run;
};

// An operation that a stream has been given.
struct Enqueued {
  const gpu::GpuEvent* end = nullptr;
  std::unique_ptr<SelectionCopies> copies;
};

struct DeviceSide {
  // compute: that of forward and backward, or of the host: then one is made.
  DeviceSide(Device where, const Stream& compute_stream, const GradientLayout& layout);

  // Packing and averaging asked of the host lane move memory of the device: the side lane does it.
  DeviceLane& LaneOf(Lane lane) { return lane == Lane::kCompute ? compute : side; }
  Enqueued& Of(Handle handle);
  // Gives what an enqueued operation reports to the host; returns when that is done.
  const gpu::GpuEvent& FetchReport(DeviceLane& lane, Handle handle);
  void BeginStep();
  // When all that was enqueued is done. Adds the spans of streams; returns the step's seconds.
  double EndStep(DeviceTimeline::Clock::time_point host_begin, Timeline& spans);
  // Waits for the lanes' streams; errors are those that the step has ended with.
  void Quiet() noexcept;

  Device device;
  gpu::EventPool events;
  OpReports reports;
  OffloadRing ring;
  TouchedRanges touched;
  DeviceTimeline timeline;
  DeviceLane compute;
  DeviceLane side;
  std::vector<const gpu::GpuEvent*> announced;  // [tensors] of this step
  std::deque<Enqueued> enqueued;                // by handle
};

}  // namespace sparfuse
