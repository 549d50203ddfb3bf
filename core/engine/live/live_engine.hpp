// Executes the operations that a strategy requests: kernels on lanes, collectives on the
// communication thread.
//
// Threads of a rank: the compute lane is the thread that calls BeginStep ... EndStep (autograd's,
// which also runs the hooks). The ProgressLoop communicates. Lanes have threads of their own
// (lanes/lanes.hpp). The strategy reacts to one event at a time: on an event thread, or on the
// compute lane if that waits for the reaction anyway. Otherwise, two thread switches for each event
// of the compute lane would add several milliseconds a step to methods with many operations.
//
// On a device the compute and side lanes are streams: an operation is done when a thread that waits
// for its event says so. Exchanges are staged (staging/exchange_staging.hpp).
#pragma once

#include <algorithm>
#include <array>
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
#include "core/engine/live/lanes/lane_thread.hpp"
#include "core/engine/live/lanes/lanes.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/selection_checks.hpp"
#include "core/engine/live/selections.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "core/engine/scheduler.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

class LiveEngine final : public StepScheduler, private LaneEvents {
 public:
  // Splits the loop's world into communicators for the channels: call it on all ranks at once.
  // `loop`, `pool` and the compute stream must outlive the engine. On a device throws
  // Error{kOutOfMemory} naming the buffer that did not fit.
  LiveEngine(LiveConfig config, ProgressLoop& loop, ThreadPool& pool);
  ~LiveEngine() override;

  // --- The training loop calls these, on the compute lane, in this order. Each call throws an
  // error that has occurred on any thread of this rank since the previous call.

  // `verify`: check in this step that each selection conserves mass exactly (costs copies). Throws
  // Error{kInternal} if the previous step has not ended: threads and streams may still work on it.
  void BeginStep(std::uint64_t step, bool verify);
  void BeginForward() { lanes_->BeginPart(); }
  void EndForward();
  // Ends a backward pass that announces nothing: a micro-step before the last.
  void EndMicroStep() { lanes_->EndPart(SpanKind::kBackward, "micro-step"); }
  // A gradient is final. `gradient`: [numel] float32, valid and unchanged until FinishStep returns.
  // Returns when the strategy has reacted and its requests to the compute lane are done. On a
  // device `gradient` is device memory, valid in the order of the compute stream, and these
  // requests have been given to the stream.
  void AnnounceGradient(std::size_t tensor, std::span<const float> gradient);
  // With LiveConfig::averages_at_end, before FinishStep: the average of a tensor goes to `to`,
  // [numel], which may be the memory of its gradient. Empty: to the engine's own.
  void AverageInto(std::size_t tensor, std::span<float> to);
  // Announces the tensors without a gradient in this step, as zeros.
  void EndBackward();
  // With LiveConfig::on_nonfinite, from EndBackward on: whether all gradients have been looked at.
  // True after FinishStep.
  bool CheckedAll() const;
  // Works on the compute lane until every element has been applied; on a device, until every
  // element is applied in the order of the compute stream. Throws Error{kTimeout} past the
  // deadline, naming the unfinished operations.
  void FinishStep();
  void BeginUpdate() { lanes_->BeginPart(); }
  // After the update, for methods with local steps: sends and receives the fragments that are due
  // in this step, and moves the parameters. Throws Error{kTimeout} as FinishStep does. Does nothing
  // for other methods.
  void Synchronise();
  // On a device waits until the streams have done the step. FinishStep may be left out in a step
  // that only measures the training loop.
  StepRecord EndStep();

  // The average of a tensor after FinishStep: [numel], engine-owned, overwritten by the next step.
  // With local steps it is this rank's gradient, in the memory where it was announced.
  // On a device use AveragedOnDevice, valid in the order of the compute stream.
  std::span<const float> Averaged(std::size_t tensor) const {
    return AveragedOnDevice(tensor).host();
  }
  DeviceSpan<const float> AveragedOnDevice(std::size_t tensor) const;
  // False in the first step of a method that delays: the averages are zeros, and the optimizer must
  // not update.
  bool HasAverage() const noexcept { return !config_.delays || steps_ > 1; }
  Stream compute_stream() const { return lanes_->compute_stream(); }  // the host's has no native

  // --- Between steps only.

  double ResidualNorm() { return selections_.ResidualNorm(); }
  // The unsent elements that this rank keeps, over all residuals. Valid until the next call.
  std::span<const float> Residual(Range range) { return selections_.Residual(range); }
  // The velocity of momentum correction; zeros without.
  std::span<const float> Velocity(Range range) { return selections_.Velocity(range); }
  // SaveState copies the state that this step leaves to the next. LoadState goes on from such a
  // copy, on any rank of a world of the same size and layout.
  void SaveState(EngineState& to);
  void LoadState(const EngineState& from);
  // Makes the next step one that Undo takes back after its EndStep: residuals, velocities and the
  // collectives' memory are then as before, bit for bit. If a sparsifier writes the new residual to
  // memory of its own, this costs no copy.
  void BeginUndoable();
  void Undo();
  // The following steps use this plan; residuals stay where they are.
  void Replan(Plan plan);
  // From the next step on, multiplies planned densities below 1 by `factor`. Every rank must call
  // it.
  void SetDensity(double factor) { density_factor_ = factor; }

  // --- Between steps, for methods with local steps. FinishWindows also for methods that delay.

  // Sets the anchor to these parameters, which must be equal on all ranks. Call it before the first
  // step. The memory is the caller's, on the device of the gradients; Synchronise and FinishWindows
  // read and write it, in the order of the compute stream. inner: unless LocalSteps::inner is
  // kKeep, the arrays of the inner optimizer's state, LiveConfig::inner_arrays of them.
  void BeginWindows(ParameterView parameters, std::vector<ParameterView> inner = {});
  // The tensors whose inner state the last step has zeroed. The optimizer must count their updates
  // anew.
  std::span<const std::size_t> Renewed() { return anchors().renewed(); }
  // The same parameters lie in other memory from now on.
  void MoveParameters(ParameterView parameters) { anchors().Move(std::move(parameters)); }
  // Runs a step that only receives the exchanges still under way. Call it once, after the last
  // step.
  StepRecord FinishWindows();
  // Exchanges parameters and anchor, so that the anchor can be evaluated. A second call restores
  // them.
  void SwapAnchor() { anchors().Swap(); }
  // On a device each waits, and returns a copy on the host that its next call overwrites.
  // OuterState has no elements if the outer rule has no state.
  std::span<const float> Anchor(Range range) { return anchors().anchor(range); }
  std::span<const float> OuterState(Range range) { return anchors().outer_state(range); }
  // Bytes of the method, without the workload's: the anchor, the state of the outer rule, and the
  // values of the largest fragment, because one is sent at a time. If the inner state of its
  // parameters is averaged, it counts, too.
  std::size_t method_memory_bytes() const;

  // --- Over the life of the engine.

  const Timeline& timeline() const noexcept { return step_.timeline; }
  // The value of MonotonicSeconds (core/transport/world/clocks.hpp) at the timeline's second 0.
  double timeline_began_seconds() const {
    return std::chrono::duration<double>(step_.begin.time_since_epoch()).count() -
           step_.timeline.shifted_seconds();
  }
  SelectCounters select_counters() const { return lanes_->counters(); }
  // Selections checked in steps with `verify`, and selections found not to conserve mass.
  std::uint64_t mass_checks() const noexcept { return checks_.mass_checks(); }
  std::uint64_t mass_violations() const noexcept { return checks_.mass_violations(); }
  // Whether unsent elements are kept: sum over ranks of residuals + P * applied = sum of inputs.
  // False with residuals that decay; each selection is checked all the same, after the decay.
  bool KeepsMass() const;
  // Fibres along axis 1 (ADTopk's) that had elements to send in these steps, and fibres that sent
  // none.
  std::uint64_t fibres_checked() const noexcept { return checks_.fibres_checked(); }
  std::uint64_t fibres_missing() const noexcept { return checks_.fibres_missing(); }

  // --- For strategies.

  std::uint64_t step() const noexcept override { return step_.number; }
  std::size_t inner_arrays() const noexcept override { return config_.inner_arrays; }
  void BeginWait(std::string label) override { waits_[std::move(label)] = step_.Now(); }
  void EndWait(const std::string& label) override;

 private:
  using Clock = LiveStep::Clock;

  enum class EventKind {
    kStepBegin,
    kGradientReady,
    kBackwardEnd,
    kAwaited,
    kUpdated,
    kFinish,
    kDone,
    kStepTimeout
  };
  struct Event {
    EventKind kind;
    std::size_t value = 0;  // tensor, handle
  };

  // In reactions.
  void StartLocal(Handle handle, Op& op) override;
  void StartExchange(Handle handle, Op& op) override;
  void StartTimerOp(Handle handle, double seconds) override;
  bool StreamsOrder(const Op& first, const Op& second) const override {
    return lanes_->OnStream(first) && lanes_->OnStream(second);
  }
  // The compute stream orders an Apply before all operations enqueued on it later.
  bool OrderedByStream(const Op& apply) const override {
    return lanes_->OnStream(apply) && apply.lane == Lane::kCompute;
  }
  void StepApplied() override { Set(applied_, true); }
  void StepComplete() override { Set(complete_, true); }
  void React(const Event& event);
  void AskAfterUpdate(void (Strategy::*ask)(Engine&));
  void BeginStepReaction();
  void Account(const LiveOp& done);
  void AccountExchange(const LiveOp& done);
  // The state of a range that is kept from step to step.
  struct RangeMemory {
    std::vector<ExchangedTensor> tensors;
    std::unique_ptr<CollectiveState> state;
    std::string place;  // for EngineState::Remembered
  };
  LiveOp& Live(Handle handle);  // of the step, or of the background
  ExchangeState& StateOf(Handle handle);
  std::vector<const ExchangeState*> Behind(const Op& started);
  ExchangeState& PrepareExchange(Handle handle, Op& exchange);
  void PreparePayload(const Op& exchange, ExchangeState& state);
  void Remember(const Op& exchange, ExchangeBuffers& buffers);
  // The collectives' memory: the part of SaveState and LoadState that selections leave out.
  void SaveCollectives(EngineState& to) const;
  void LoadCollectives(const EngineState& from);
  // Gives a new state the memory that LoadState has read for its range.
  void LoadInto(CollectiveState& state, Range range, const std::string& place) const;
  double DensityNow(double planned) const {
    return planned < 1 ? std::min(1.0, planned * density_factor_) : planned;
  }

  // Any thread.
  void RunEvents();
  template <class Reaction>
  void ReactAlone(std::unique_lock<std::mutex>& lock, Reaction&& reaction);
  // False if there is no event, or if another thread reacts.
  bool ReactToNext(std::unique_lock<std::mutex>& lock);
  // Leaves the events that arrived during this thread's reaction to the event thread. The caller
  // holds mutex_.
  void HandOver() {
    if (!events_.empty()) event_posted_.notify_one();
  }
  // The clock of LiveConfig::pauses_between_steps, which stands still between steps. Precondition:
  // mutex_ is held.
  Clock::duration TimeInSteps(Clock::time_point at) const {
    return (pause_ ? std::min(at, *pause_) : at).time_since_epoch() - paused_;
  }
  void Set(bool& flag, bool to) {
    std::lock_guard lock(mutex_);
    flag = to;
  }
  void BeginTime();
  void EndTime();
  // Keeps the end of an exchange in the background for later, if it had time between steps.
  bool HoldBack(Handle handle, ExchangeState& state);
  // Precondition of both: mutex_ is held. When a timer or an exchange that is held back is next
  // due; reports the exchanges that are.
  Clock::time_point NextDue() const;
  void ReportHeldBack();
  // Returns the event's place in the order of reactions.
  std::uint64_t Post(Event event);
  void ComputeWorkQueued() override;
  void Done(Handle handle) override;
  void Fail(std::exception_ptr error) noexcept override;
  bool Failed() override;
  void ReleaseChannels() noexcept;

  // Compute lane.
  std::uint64_t WorkOnNext(std::unique_lock<std::mutex>& lock);
  void Drain(std::uint64_t sequence);
  void WorkUntil(const bool& done);  // `done` is guarded by mutex_
  void EndUpdate() {
    if (std::exchange(updating_, false)) lanes_->EndPart(SpanKind::kUpdate, "");
  }
  std::chrono::milliseconds Lateness() const;
  Anchors& anchors();
  bool average_comes() const { return config_.delays && steps_ > 0; }  // after the last step

  // Communication thread.
  Task SplitChannels(Communicator& world);
  // Throws Error{kConfig} unless all ranks send and receive the same fragments at the same steps.
  Task CompareDates(Communicator& world);
  Task RunExchange(ExchangeState& state);
  Task RunNegotiate(Op& op);
  Communicator& ChannelOf(const Op& op);
  int NextTag(const Op& op);

  LiveConfig config_;
  ProgressLoop& loop_;
  LiveStep step_;
  Selections selections_;  // reactions
  SelectionChecks checks_;
  JobThread jobs_;
  std::unique_ptr<Lanes> lanes_;
  std::unique_ptr<ExchangeStaging> staging_;  // communication thread
  std::array<std::unique_ptr<Communicator>, kChannels> channels_;
  std::array<int, kChannels> next_tag_{};
  std::deque<LiveOp> live_;                                // reactions; by handle
  std::vector<std::unique_ptr<ExchangeState>> exchanges_;  // reactions
  std::size_t exchanges_used_ = 0;
  struct InBackgroundOp {
    LiveOp live;
    std::unique_ptr<ExchangeState> state;
  };
  std::map<Handle, InBackgroundOp> in_background_;      // reactions
  std::vector<std::unique_ptr<ExchangeState>> unused_;  // of the background
  // For sparse exchanges, by collective, channel and range. Made in reactions, then used by the
  // communication thread.
  std::map<std::tuple<const Collective*, Channel, std::size_t, std::size_t>, RangeMemory>
      range_memory_;
  EngineState undo_;    // memory that stores do not keep themselves
  EngineState loaded_;  // for states that the step after LoadState makes

  double density_factor_ = 1;
  std::uint64_t steps_ = 0;  // number of begun steps
  bool in_step_ = false;
  bool finishing_ = false;               // this step is to be applied
  bool updating_ = false;                // the last part has not ended
  double slowest_seconds_ = 0;           // step
  std::map<std::string, double> waits_;  // reactions
  StepRecord record_;                    // its counters: reactions

  std::mutex mutex_;  // guards the members below
  std::condition_variable event_posted_;
  std::condition_variable changed_;  // for the compute lane, and the destructor
  std::deque<Event> events_;
  std::uint64_t posted_ = 0;
  std::uint64_t processed_ = 0;
  bool reacting_ = false;
  std::size_t communicating_ = 0;
  std::multimap<Clock::time_point, Handle> timers_;
  struct HeldBack {
    Handle handle;
    ExchangeState* state;
  };
  std::multimap<Clock::duration, HeldBack> held_back_;  // by their ends, as TimeInSteps
  Clock::duration paused_{};                            // sum of the times between steps
  std::optional<Clock::time_point> pause_;              // between steps: since when
  bool applied_ = false;
  bool complete_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread event_thread_;
};

}  // namespace sparfuse
