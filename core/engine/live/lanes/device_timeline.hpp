// Measures spans of a device's streams: events are recorded around them, and become seconds when
// the step has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/completion_thread.hpp"
#include "core/device/event_pool.hpp"
#include "core/engine/timeline.hpp"

namespace sparfuse {

// The compute stream is in one phase at a time: forward, backward or update, whose spans end where
// an operation begins or the phase is over. Any thread; the events come from `events`.
class DeviceTimeline {
 public:
  using Clock = std::chrono::steady_clock;

  // now: the host's clock.
  explicit DeviceTimeline(gpu::EventPool& events,
                          std::function<Clock::time_point()> now = &Clock::now)
      : events_(events), now_(std::move(now)) {}
  void SetCompute(const Stream& compute) { compute_ = compute; }

  // `completions` tells when the stream has come here: the host's time then is that of the event.
  // The two clocks differ by what it takes the host to notice, some 10 to 50 us, and by their
  // drift, far less in a step: spans of the host appear that much too early beside the streams'.
  // Returns the event.
  const gpu::GpuEvent& BeginStep(gpu::CompletionThread& completions);

  // Of the compute stream. What comes now begins here.
  void Mark();
  // What began at the last end of a span or Mark ends here, and what comes now begins here; returns
  // that point.
  const gpu::GpuEvent& EndPart(SpanKind kind, std::string label);
  // What an operation that begins now on the compute stream interrupts: a part of backward that
  // goes on, the wait for communication (kExposed), or, null, nothing.
  void SetInterrupted(std::optional<SpanKind> kind);

  // Around an operation on a stream. span: without times and bytes; `bytes` are read by Resolve,
  // when they are known.
  const gpu::GpuEvent& Begin(const Stream& stream);
  const gpu::GpuEvent& End(const Stream& stream, const gpu::GpuEvent& begin, Span span,
                           const std::uint64_t& bytes);

  // Waits for the end of the last part, and adds all spans to `timeline`, whose own are of the
  // host's clock, in seconds since `host_begin`; now all are in seconds since the step's event.
  // Returns the seconds at the end of the last part.
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
