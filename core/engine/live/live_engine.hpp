// Does what a strategy asks for: kernels on lanes, collectives on the communication thread.
//
// Threads of a rank: the compute lane is the thread that calls BeginStep ... EndStep (autograd's,
// which also runs the hooks); the ProgressLoop communicates; side and host lanes are threads, made
// on first use. Reactions of the strategy run one at a time: on an event thread, but on the compute
// lane where that waits for them anyway. Two switches of threads for each event of the compute lane
// would cost a method with many operations several milliseconds a step, which is not the method's
// cost.
//
// On a device the compute and side lanes are streams. A reaction gives an operation to its stream
// at once, with waits for the events of what it comes after on another one; an operation is done
// when a thread that waits for its event says so. What is selected on the host lane is copied there
// through pinned memory, and has its residual there. Exchanges are staged (exchange_staging.hpp).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/live/device_side.hpp"
#include "core/engine/live/exchange_staging.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/scheduler.hpp"
#include "core/engine/timeline.hpp"
#include "core/feedback/feedback.hpp"
#include "core/feedback/placed_store.hpp"
#include "core/quantize/payload_coding.hpp"
#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

struct LiveConfig {
  GradientLayout layout;
  Plan plan;
  Topology topology;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Sparsifier> sparsifier;  // null when nothing is sparsified
  bool unbounded_count = false;            // of its descriptor: slots hold all elements
  Feedback feedback;                       // for all tensors but those without feedback
  // Codes tensors of density 1, which then travel without indices. Null: they have indices, as
  // others do.
  std::unique_ptr<Quantizer> runs;
  const Collective* dense_collective = nullptr;  // for exchanges without selections
  const Collective* sparse_collective = nullptr;
  PayloadCoding coding;  // of what has indices; f32 and u32: without a header
  Device device;         // where gradients and averages lie
  // On a device: that of forward, backward and update. By default the engine makes one.
  Stream compute;
  std::chrono::milliseconds deadline{60000};  // of FinishStep, beyond that of any single wait
};

class LiveEngine final : public StepScheduler {
 public:
  // Splits the loop's world into communicators for the channels: call it on all ranks at once.
  // `loop`, `pool` and the compute stream must outlive the engine. On a device throws
  // Error{kOutOfMemory} naming what there was no room for.
  LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool);
  ~LiveEngine() override;

  // What follows is called by the training loop, on the compute lane, in this order. Each call
  // throws what went wrong on any thread of this rank since.

  // `verify`: check in this step that each selection conserves mass exactly (costs copies). Throws
  // Error{kInternal} where the step before has not ended: threads and streams may be at work on it.
  void BeginStep(std::uint64_t step, bool verify);
  void BeginForward();
  void EndForward();
  // Ends a backward pass that announces nothing: a micro-step before the last.
  void EndMicroStep();
  // A gradient is final. `gradient`: [numel] float32, valid and unchanged until FinishStep returns.
  // Returns when the strategy has reacted and what it asked of the compute lane is done. On a
  // device: memory there, valid in the order of the compute stream; what was asked of the lane has
  // been given to the stream.
  void AnnounceGradient(std::size_t tensor, std::span<const float> gradient);
  // Announces the tensors that got no gradient in this step, as zeros.
  void EndBackward();
  // Works on the compute lane until every element has been applied. Throws Error{kTimeout} past the
  // deadline, saying what is unfinished. On a device: until it is applied in the order of the
  // compute stream.
  void FinishStep();
  void BeginUpdate();
  // On a device waits until the streams have done the step. Of a step that only measures the
  // training loop, FinishStep may be left out.
  StepRecord EndStep();

  // The average of a tensor after FinishStep: [numel], engine-owned, overwritten by the next step.
  // On a device AveragedOnDevice, valid in the order of its stream, the compute stream.
  std::span<const float> Averaged(std::size_t tensor) const {
    return AveragedOnDevice(tensor).host();
  }
  DeviceSpan<const float> AveragedOnDevice(std::size_t tensor) const;
  // Between steps only.
  double ResidualNorm() { return residuals_.Norm(); }
  // On a device a copy, valid until the next call.
  std::span<const float> Residual(std::string_view name, Range range) {
    return residuals_.Read(name, range);
  }
  // With momentum correction; zeros without.
  std::span<const float> Velocity(std::string_view name, Range range) {
    return velocities_.Read(name, range);
  }
  // Of the host's device: none.
  Stream compute_stream() const { return device_ ? device_->compute.stream : Stream{}; }
  // Between steps only. What follows goes by another plan; residuals stay where they are.
  void Replan(Plan plan);
  // Between steps only. Changes what is selected from the next step on: every rank must.
  void SetDensity(double factor);
  const Timeline& timeline() const noexcept { return timeline_; }
  SelectCounters select_counters() const;
  // Selections checked in steps with `verify`, and those found not to conserve mass.
  std::uint64_t mass_checks() const noexcept { return mass_checks_; }
  std::uint64_t mass_violations() const noexcept { return mass_violations_; }
  // Fibres along axis 1 (ADTopk's) that had something to send in these steps, and those that sent
  // nothing.
  std::uint64_t fibres_checked() const noexcept { return fibres_checked_; }
  std::uint64_t fibres_missing() const noexcept { return fibres_missing_; }

  // For strategies.
  void BeginWait(std::string label) override;
  void EndWait(const std::string& label) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Work {  // an operation on its way to a lane
    Handle handle = 0;
    Op* op = nullptr;
    ExchangeState* exchange = nullptr;  // kApply
    // On a device: when what is selected from is valid, and where it is copied to.
    const gpu::GpuEvent* ready = nullptr;
    OffloadRing::Slot* offloaded = nullptr;
  };
  enum class EventKind { kStepBegin, kGradientReady, kBackwardEnd, kDone, kStepTimeout };
  struct Event {
    EventKind kind;
    std::size_t value = 0;  // tensor, handle
  };
  struct LaneState {
    std::deque<Work> queue;
    std::thread thread;                // kSide and kHost
    std::unique_ptr<ThreadPool> pool;  // kSide and kHost: their thread alone
    Workspace workspace;
    SelectCounters counters;
    Elements decoded;
    Buffer<float> growth;  // of velocities, with nesterov
  };

  // In reactions.
  void StartLocal(Handle handle, Op& op) override;
  void StartExchange(Handle handle, Op& op) override;
  void StartTimerOp(Handle handle, Op& op) override;
  void StepComplete() override;
  void StepSettled() override;
  bool Follows(const Op& first, const Op& second) const override;
  bool SettlesWhenStarted(const Op& apply) const override;
  void React(const Event& event);
  void Account(const Op& op);
  Selection& SelectionOf(const Op& op);
  void PrepareSlot(const Op& op, Selection& selection);

  // Any thread.
  void RunEvents();
  template <class Reaction>
  void ReactAlone(std::unique_lock<std::mutex>& lock, Reaction&& reaction);
  // False when there is nothing to react to, or somebody does.
  bool ReactToNext(std::unique_lock<std::mutex>& lock);
  void HandOver();
  // Returns the event's place in the order of reactions.
  std::uint64_t Post(Event event);
  void PostAndWake(Event event);
  void Fail(std::exception_ptr error) noexcept;
  void ReleaseChannels() noexcept;
  double Now() const;

  // The thread of a lane.
  void RunLane(Lane lane);
  void Execute(Lane lane, const Work& work);
  void DoPack(const Op& op);
  void DoSparsify(Lane lane, Op& op);
  void SelectInto(Lane lane, Selection& selection, double density);
  void EncodeRun(Lane lane, Selection& selection);
  void DoApply(Lane lane, const Op& op, const ExchangeState& exchange);
  void ApplyReduced(Lane lane, const Op& op, const ExchangeState& exchange);
  void ApplyRuns(Lane lane, const Op& op, const ExchangeState& exchange);
  void ApplySelected(Lane lane, const Op& op, const ExchangeState& exchange);
  static std::vector<Range> RangesWithIndices(const ExchangeState& exchange);
  void CheckMass(std::span<const float> x, const Selection& selection, SparsePayload sent,
                 std::span<const float> unsent);
  void CheckRunMass(std::span<const float> x, std::span<const std::byte> run,
                    std::span<const float> residual);
  std::uint64_t CountMissing(const Selection& selection) const;
  void CheckFibres(std::span<const float> x, const Selection& selection,
                   std::span<const std::uint32_t> indices);
  bool IsCoded() const { return config_.coding != PayloadCoding{}; }
  ThreadPool& PoolOf(Lane lane);
  std::span<float> AveragedRange(const Range& range) {
    return averaged_.host().subspan(range.begin, range.size());
  }

  // On a device. The thread of the host lane.
  void TakeOffloaded(const Work& work);
  void GiveBackOffloaded(const Work& work);
  // In reactions.
  bool OnStream(const Op& op) const;
  bool ReadsGradient(const Op& sparsify) const;
  void StartOffload(Work& work);
  void Enqueue(Handle handle, Op& op);
  void WaitBeforeEnqueued(const Op& op, const Stream& stream);
  void EnqueuePack(const Op& op, const Stream& stream, OpReport& report);
  void EnqueueSparsify(Op& op, DeviceLane& lane, OpReport& report, Enqueued& enqueued);
  DeviceSpan<const std::uint32_t> BoundsOf(Selection& selection, const Stream& stream);
  void EnqueueApply(const Op& op, DeviceLane& lane, OpReport& report);
  void CopyBefore(const Selection& selection, const Stream& stream, SelectionCopies& copies);
  void CopyAfter(const Selection& selection, const Stream& stream, SelectionCopies& copies);
  void TakeEnqueued(Handle handle, Op& op);
  void CheckCopies(const Selection& selection, const SelectionCopies& copies);

  // Compute lane.
  std::uint64_t ExecuteNext(std::unique_lock<std::mutex>& lock, bool waited);
  void Drain(std::uint64_t sequence);
  void BeginComputeSpan();
  void AddComputeSpan(SpanKind kind, std::string label);
  // `done` is guarded by mutex_.
  void WorkUntil(const bool& done);

  // Communication thread.
  Task SplitChannels(Communicator& world);
  Task RunExchange(Op& op, ExchangeState& state);
  Task RunNegotiate(Op& op);
  Communicator& ChannelOf(const Op& exchange);
  int NextTag(const Op& op);

  LiveConfig config_;
  ProgressLoop& loop_;
  ThreadPool& pool_;
  PlacedStore residuals_;
  PlacedStore velocities_;  // with momentum
  double density_factor_ = 1;
  Buffer<float> flat_;  // packed gradients; after a dense exchange their sum
  Buffer<float> averaged_;
  Buffer<float> zeros_;  // the gradient of tensors that got none
  std::array<std::unique_ptr<Communicator>, kChannels> channels_;
  std::array<int, kChannels> next_tag_{};
  std::unique_ptr<DeviceSide> device_;        // null on the host
  std::unique_ptr<ExchangeStaging> staging_;  // communication thread

  std::vector<std::span<const float>> gradients_;  // [tensors] of this step; empty: not announced
  std::vector<std::uint8_t> packed_;               // [tensors]
  // By range and residual; reactions.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, Selection> selections_;
  std::vector<std::unique_ptr<ExchangeState>> exchanges_;  // reactions
  std::size_t exchanges_used_ = 0;
  std::atomic<std::uint64_t> mass_checks_ = 0;
  std::atomic<std::uint64_t> mass_violations_ = 0;
  std::atomic<std::uint64_t> fibres_checked_ = 0;
  std::atomic<std::uint64_t> fibres_missing_ = 0;

  std::uint64_t step_ = 0;
  bool verify_ = false;
  bool in_step_ = false;
  bool finishing_ = false;  // this step is to be applied
  Clock::time_point step_begin_;
  double compute_since_ = 0;  // end of the last span on the compute lane
  Timeline timeline_;
  std::map<std::string, double> waits_;  // reactions
  StepRecord record_;                    // its counters: reactions

  std::mutex mutex_;  // guards what follows
  std::condition_variable event_posted_;
  std::condition_variable lanes_changed_;
  std::deque<Event> events_;
  std::uint64_t posted_ = 0;
  std::uint64_t processed_ = 0;
  bool reacting_ = false;
  std::size_t communicating_ = 0;
  std::multimap<Clock::time_point, Handle> timers_;
  std::array<LaneState, kLanes> lanes_;
  bool settled_ = false;
  bool complete_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread event_thread_;
};

}  // namespace sparfuse
