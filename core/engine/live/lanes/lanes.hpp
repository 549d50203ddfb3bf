// Declares the lanes, which do the local work of a step: threads on the host (host_lanes.cpp),
// streams on a device (device_lanes.cpp). A LiveEngine drives both through one interface.
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

// The events that lanes report to their engine, from any thread.
class LaneEvents {
 public:
  virtual void ComputeWorkQueued() = 0;
  virtual void Done(Handle handle) = 0;
  virtual void Fail(std::exception_ptr error) noexcept = 0;
  virtual bool Failed() = 0;  // if so, queued work is not begun

 protected:
  ~LaneEvents() = default;
};

// All referenced objects outlive the lanes.
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

  // The stream of forward and backward; the host's has no native stream.
  virtual Stream compute_stream() const = 0;
  virtual std::unique_ptr<ExchangeStaging> MakeStaging(const StagingSetup& setup,
                                                       ProgressLoop& loop) = 0;
  virtual SelectCounters counters() const = 0;

  // --- Called by the thread of the training loop, which is the compute lane of the host.

  virtual void BeginStep() = 0;
  // Mark the begin and the end of a part of forward, backward or update. The next part begins at
  // the end of a part, or of an operation of the compute lane.
  virtual void BeginPart() = 0;
  virtual void EndPart(SpanKind kind, std::string label) = 0;
  // Names the span that operations of the compute lane interrupt from now on: a part of backward,
  // which goes on after them, the wait for communication (kExposed), or nothing.
  virtual void SetInterrupted(std::optional<SpanKind> kind) = 0;
  // The gradient in step.gradients[tensor] is valid from the end of the last part on.
  virtual void Announce(std::size_t tensor) = 0;
  // HasWork: whether an operation waits for this thread. Work: does it, and returns its handle.
  virtual bool HasWork() = 0;
  virtual Handle Work() = 0;
  // Call when all operations are done. Returns the seconds of the step, up to the end of the last
  // part.
  virtual double EndStep() = 0;
  // Call between steps: the ranges are different from now on.
  virtual void Replan() {}
  // Ends begun work and drops the rest. Adds no errors to those with which the step has ended.
  virtual void Stop() noexcept = 0;

  // --- Called in reactions.

  // Whether a stream does the operation, which is then ordered with others once it is started.
  virtual bool OnStream(const Op& /*local*/) const { return false; }
  // Starts or queues the operation; LaneEvents::Done reports its end.
  virtual void Start(LiveOp& local) = 0;
  // The operation is done: reads its report. Throws the error that it reports, if any.
  virtual void Take(LiveOp& /*local*/) {}
};

// Makes the lanes of setup.config.device.
std::unique_ptr<Lanes> MakeLanes(const LaneSetup& setup);
std::unique_ptr<Lanes> MakeHostLanes(const LaneSetup& setup);
std::unique_ptr<Lanes> MakeDeviceLanes(const LaneSetup& setup);

}  // namespace sparfuse
