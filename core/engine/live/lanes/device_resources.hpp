// Holds device resources of a LiveEngine's lanes: result words copied back to the host, bits that
// mark touched parts of the averaged gradient, copies of selections to be checked, and events
// around spans of streams, which become seconds when the step has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/completion_thread.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/selection_checks.hpp"
#include "core/engine/timeline.hpp"
#include "core/fusion/layout.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// Result words that an operation leaves on the device, copied to the host. All zero at first.
struct OpReport {
  SlotReport slot;            // of a selection; of a pack not_finite
  std::uint64_t missing = 0;  // tensors without a selected element
  std::uint64_t fault = 0;    // of a sum: as AccumulateSparseOnDevice's
  float clip = 0;             // of a selection: factor by which clipping multiplies the gradient
};

// A report for each operation of a step. Grows in blocks, which the next step reuses.
class OpReports {
 public:
  explicit OpReports(Device device) : device_(device) {}

  // Zeros the reports that the last step used, in the order of `stream`.
  void Clear(const Stream& stream);
  OpReport* OnDevice(Handle handle);
  // Copies it to the host, in the order of `stream`.
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

// Bits of the parts of the averaged gradient that hold values, so that sparse sums need not clear
// all of it (AccumulateSparseOnDevice's `touched`). They hold as long as ranges stay the same.
class TouchedRanges {
 public:
  explicit TouchedRanges(Device device) : device_(device) {}
  // The bits of a range that receives a sum; null: the range must be written whole.
  std::uint32_t* Of(Range range, const Stream& stream);
  // Call when other values are written to the range.
  void Forget(Range range);
  // Ranges may change from here on.
  void Restart();

 private:
  struct Entry {
    std::size_t end = 0;
    Buffer<std::uint32_t> bits;
  };
  // Removes entries that overlap the range; its own entry only if `itself`. True if any was
  // removed.
  bool EraseOverlapping(Range range, bool itself);

  Device device_;
  std::map<std::size_t, Entry> entries_;  // by begin
  bool changing_ = false;                 // ranges differ from step to step
};

// Copies the source and the result of one selection from a device to the host, to be checked there,
// in a step that verifies and in the order of `stream`.
class SelectionCopies {
 public:
  // Copies the source, before the selection.
  SelectionCopies(const Stream& stream, const Selection& selection);
  void CopyAfter(const Stream& stream, const Selection& selection);
  // Call when the stream has made the copies, and the selection's count is known.
  void Check(SelectionChecks& checks, const Selection& selection) const;

 private:
  std::vector<float> source_, residual_;  // before
  std::vector<float> unsent_;             // after
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::byte> encoded_;
};

// Records the spans of streams. The compute stream is in one phase at a time: forward, backward or
// update. A span of the phase ends when an operation begins or the phase is over. Any thread may
// use it; the events come from `events`.
class DeviceTimeline {
 public:
  using Clock = std::chrono::steady_clock;

  // now: the host's clock.
  explicit DeviceTimeline(gpu::EventPool& events,
                          std::function<Clock::time_point()> now = &Clock::now)
      : events_(events), now_(std::move(now)) {}
  void SetCompute(const Stream& compute) { compute_ = compute; }

  // `completions` reports when the stream has come here; the host's time then counts as the
  // event's. The two clocks differ by the time until the host notices, 10 to 50 us, and by their
  // drift, far less in a step. So spans of the host appear too early by that much relative to the
  // streams'. Returns the event.
  const gpu::GpuEvent& BeginStep(gpu::CompletionThread& completions);

  // On the compute stream: the next span begins here.
  void Mark();
  // On the compute stream: ends here the span that began at the last Mark or end of a span, and
  // begins the next. Returns this point.
  const gpu::GpuEvent& EndPart(SpanKind kind, std::string label);
  // Names the span that an operation beginning now on the compute stream interrupts: a part of
  // backward that goes on, the wait for communication (kExposed), or, null, nothing.
  void SetInterrupted(std::optional<SpanKind> kind);

  // Call around an operation on a stream. span: without times and bytes; Resolve reads `bytes`,
  // when they are known.
  const gpu::GpuEvent& Begin(const Stream& stream);
  const gpu::GpuEvent& End(const Stream& stream, const gpu::GpuEvent& begin, Span span,
                           const std::uint64_t& bytes);

  // Waits for the end of the last part, and adds all spans to `timeline`. The timeline's own spans
  // are by the host's clock, in seconds since `host_begin`; afterwards all are in seconds since the
  // step's event. Returns the seconds at the end of the last part.
  double Resolve(Clock::time_point host_begin, Timeline& timeline);

 private:
  struct Recorded {
    Span span;
    const gpu::GpuEvent* begin;
    const gpu::GpuEvent* end;
    const std::uint64_t* bytes = nullptr;
  };
  bool OfCompute(const Stream& stream) const { return stream.native == compute_.native; }

  gpu::EventPool& events_;
  std::function<Clock::time_point()> now_;
  Stream compute_;
  std::mutex mutex_;
  std::condition_variable tied_;
  const gpu::GpuEvent* step_begin_ = nullptr;
  const gpu::GpuEvent* since_ = nullptr;
  std::optional<SpanKind> interrupted_;
  std::vector<Recorded> recorded_;
  std::optional<Clock::time_point> host_time_;  // of step_begin_
  std::exception_ptr error_;
};

}  // namespace sparfuse
