// Lanes do the local work of a step: threads on the host (host_lanes.cpp), streams on a device
// (device_lanes.cpp). A LiveEngine drives both through one interface.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "core/base/thread_pool.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/selection_checks.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "core/engine/scheduler.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

// What lanes tell their engine, from any thread.
class LaneEvents {
 public:
  virtual void ComputeWorkQueued() = 0;
  virtual void Done(Handle handle) = 0;
  virtual void Fail(std::exception_ptr error) noexcept = 0;
  virtual bool Failed() = 0;  // what is queued is not begun any more

 protected:
  ~LaneEvents() = default;
};

// All that is referred to outlives the lanes.
struct LaneSetup {
  const LiveConfig& config;
  int rank = 0;
  int workers = 1;
  LiveStep& step;
  SelectionChecks& checks;
  ThreadPool& pool;  // of the compute lane
  LaneEvents& events;
};

class Lanes {
 public:
  virtual ~Lanes() = default;

  // That of forward and backward; the host's has no native stream.
  virtual Stream compute_stream() const = 0;
  virtual std::unique_ptr<ExchangeStaging> MakeStaging(const StagingSetup& setup,
                                                       ProgressLoop& loop) = 0;
  virtual SelectCounters counters() const = 0;

  // --- The thread of the training loop, which is the compute lane of the host.

  virtual void BeginStep() = 0;
  // A part of forward, backward or update begins; ends. The end of one, and that of an operation of
  // the compute lane, is the begin of the next.
  virtual void BeginPart() = 0;
  virtual void EndPart(SpanKind kind, std::string label) = 0;
  // What operations of the compute lane interrupt from now on: a part of backward, which goes on
  // after them, the wait for communication (kExposed), or nothing.
  virtual void SetInterrupted(std::optional<SpanKind> kind) = 0;
  // The gradient in step.gradients[tensor] is valid where the last part has ended.
  virtual void Announce(std::size_t tensor) = 0;
  // Whether an operation waits for this thread; does it, and returns its handle.
  virtual bool HasWork() = 0;
  virtual Handle Work() = 0;
  // When all operations are done. Returns the seconds of the step, up to the end of the last part.
  virtual double EndStep() = 0;
  // Between steps: ranges are other ones from now on.
  virtual void Replan() {}
  // Ends what has begun, drops the rest. Errors are those that the step has ended with.
  virtual void Stop() noexcept = 0;

  // --- Reactions.

  // A stream does the operation: it is ordered with others as soon as it is started.
  virtual bool OnStream(const Op& /*local*/) const { return false; }
  // Does the operation, sooner or later; LaneEvents::Done says when it has been done.
  virtual void Start(LiveOp& local) = 0;
  // The operation is done: takes what it reports. Throws what it reports as an error.
  virtual void Take(LiveOp& /*local*/) {}
};

// Lanes of setup.config.device.
std::unique_ptr<Lanes> MakeLanes(const LaneSetup& setup);
std::unique_ptr<Lanes> MakeHostLanes(const LaneSetup& setup);
std::unique_ptr<Lanes> MakeDeviceLanes(const LaneSetup& setup);

}  // namespace sparfuse
