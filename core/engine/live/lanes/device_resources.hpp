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
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
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
#include "core/payload/accumulate_device.hpp"
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
  void Clear(const Stream& stream) {
    for (const Block& block : blocks_) {
      gpu::FillAsync(stream, block.on_device.data(), 0, kBlock * sizeof(OpReport));
    }
  }
  OpReport* OnDevice(Handle handle) { return Of(handle).on_device.data() + (handle - 1) % kBlock; }
  // Copies it to the host, in the order of `stream`.
  void Fetch(const Stream& stream, Handle handle) {
    gpu::CopyAsync(stream, Of(handle).on_host.data() + (handle - 1) % kBlock, OnDevice(handle),
                   sizeof(OpReport));
  }
  const OpReport& OnHost(Handle handle) { return Of(handle).on_host[(handle - 1) % kBlock]; }

 private:
  static constexpr std::size_t kBlock = 256;
  struct Block {
    Buffer<OpReport> on_device;
    gpu::PinnedBuffer<OpReport> on_host;
  };
  Block& Of(Handle handle) {
    const std::size_t block = (handle - 1) / kBlock;
    while (blocks_.size() <= block) {
      blocks_.push_back(
          {Buffer<OpReport>(kBlock, device_, "the reports of operations"),
           gpu::PinnedBuffer<OpReport>(kBlock, device_, "the reports of operations")});
    }
    return blocks_[block];
  }

  Device device_;
  std::vector<Block> blocks_;
};

// Bits of the parts of the averaged gradient that hold values, so that sparse sums need not clear
// all of it (AccumulateSparseOnDevice's `touched`). They hold as long as ranges stay the same.
class TouchedRanges {
 public:
  explicit TouchedRanges(Device device) : device_(device) {}
  // The bits of a range that receives a sum; null: the range must be written whole.
  std::uint32_t* Of(Range range, const Stream& stream) {
    if (changing_) return nullptr;
    if (EraseOverlapping(range, false)) {  // of earlier steps: ranges of one step are disjoint
      changing_ = true;
      return nullptr;
    }
    Entry& entry = entries_[range.begin];
    if (entry.bits.size() == 0) {
      entry.end = range.end;
      entry.bits =
          Buffer<std::uint32_t>(TouchedWords(range.size()), device_, "the touched elements");
      // The touched words are unknown, so all are marked.
      gpu::FillAsync(stream, entry.bits.data(), 0xff, entry.bits.size() * sizeof(std::uint32_t));
    }
    return entry.bits.data();
  }
  // Call when other values are written to the range.
  void Forget(Range range) { EraseOverlapping(range, true); }
  // Ranges may change from here on.
  void Restart() {
    entries_.clear();
    changing_ = false;
  }

 private:
  struct Entry {
    std::size_t end = 0;
    Buffer<std::uint32_t> bits;
  };
  // Removes entries that overlap the range; its own entry only if `itself`. True if any was
  // removed.
  bool EraseOverlapping(Range range, bool itself) {
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

  Device device_;
  std::map<std::size_t, Entry> entries_;  // by begin
  bool changing_ = false;                 // ranges differ from step to step
};

// Copies the source and the result of one selection from a device to the host, to be checked there,
// in a step that verifies and in the order of `stream`.
class SelectionCopies {
 public:
  // Copies the source, before the selection.
  SelectionCopies(const Stream& stream, const Selection& selection) {
    Copy<float>(stream, source_, selection.source.data, selection.source.size);
    Copy<float>(stream, residual_, selection.residual.data, selection.residual.size);
  }
  void CopyAfter(const Stream& stream, const Selection& selection) {
    Copy<float>(stream, unsent_, selection.residual.data, selection.residual.size);
    if (selection.whole) {
      Copy<std::byte>(stream, encoded_, selection.encoded.data(), selection.encoded.size());
      return;
    }
    Copy<std::uint32_t>(stream, indices_, selection.slot.indices.data, selection.slot.capacity);
    Copy<float>(stream, values_, selection.slot.values.data, selection.slot.capacity);
  }
  // Call when the stream has made the copies, and the selection's count is known.
  void Check(SelectionChecks& checks, const Selection& selection) const {
    std::vector<float> x = source_;
    for (std::size_t i = 0; i < residual_.size(); ++i) x[i] += residual_[i];
    if (selection.whole) return checks.CheckWhole(x, encoded_, unsent_);
    const std::size_t count = selection.slot.count;
    checks.CheckSelected(x, selection,
                         {std::span(indices_).first(count), std::span(values_).first(count)},
                         residual_.empty() ? source_ : unsent_);
  }

 private:
  template <class T>
  static void Copy(const Stream& stream, std::vector<T>& to, const T* from, std::size_t count) {
    to.resize(count);
    gpu::CopyAsync(stream, to.data(), from, count * sizeof(T));
  }

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
  const gpu::GpuEvent& BeginStep(gpu::CompletionThread& completions) {
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

  // On the compute stream: the next span begins here.
  void Mark() {
    std::lock_guard lock(mutex_);
    since_ = &events_.Record(compute_);
  }

  // On the compute stream: ends here the span that began at the last Mark or end of a span, and
  // begins the next. Returns this point.
  const gpu::GpuEvent& EndPart(SpanKind kind, std::string label) {
    std::lock_guard lock(mutex_);
    const gpu::GpuEvent& end = events_.Record(compute_);
    recorded_.push_back(
        {{kind, std::string(LaneName(Lane::kCompute)), std::move(label), 0, 0, 0}, since_, &end});
    since_ = &end;
    return end;
  }

  // Names the span that an operation beginning now on the compute stream interrupts: a part of
  // backward that goes on, the wait for communication (kExposed), or, null, nothing.
  void SetInterrupted(std::optional<SpanKind> kind) {
    std::lock_guard lock(mutex_);
    interrupted_ = kind;
  }

  // Call around an operation on a stream. span: without times and bytes; Resolve reads `bytes`,
  // when they are known.
  const gpu::GpuEvent& Begin(const Stream& stream) {
    std::lock_guard lock(mutex_);
    const gpu::GpuEvent& begin = events_.Record(stream);
    if (OfCompute(stream) && interrupted_) {
      recorded_.push_back(
          {{*interrupted_, std::string(LaneName(Lane::kCompute)), "", 0, 0, 0}, since_, &begin});
    }
    return begin;
  }

  const gpu::GpuEvent& End(const Stream& stream, const gpu::GpuEvent& begin, Span span,
                           const std::uint64_t& bytes) {
    std::lock_guard lock(mutex_);
    const gpu::GpuEvent& end = events_.Record(stream);
    recorded_.push_back({std::move(span), &begin, &end, &bytes});
    if (OfCompute(stream)) since_ = &end;
    return end;
  }

  // Waits for the end of the last part, and adds all spans to `timeline`. The timeline's own spans
  // are by the host's clock, in seconds since `host_begin`; afterwards all are in seconds since the
  // step's event. Returns the seconds at the end of the last part.
  double Resolve(Clock::time_point host_begin, Timeline& timeline) {
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
