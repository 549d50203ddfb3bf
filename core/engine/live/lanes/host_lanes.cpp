// Runs lanes on the host: the compute lane is the thread of the training loop, and each other lane
// has its own thread.
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/live/lanes/host_work.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "core/engine/live/lanes/lanes.hpp"

namespace sparfuse {
namespace {

class HostLanes final : public Lanes {
 public:
  explicit HostLanes(const LaneSetup& setup)
      : step_(setup.step),
        events_(setup.events),
        averages_at_end_(setup.config.averages_at_end),
        compute_(setup, Lane::kCompute, setup.pool),
        side_(setup, Lane::kSide),
        host_(setup, Lane::kHost) {}

  Stream compute_stream() const override { return {}; }

  std::unique_ptr<ExchangeStaging> MakeStaging(const StagingSetup& setup, ProgressLoop&) override {
    return MakeHostStaging(setup);
  }

  SelectCounters counters() const override {
    SelectCounters sum;
    for (const HostWork* work : {&compute_, &side_.work, &host_.work}) sum += work->counters();
    return sum;
  }

  void BeginStep() override {
    since_ = 0;
    waiting_ = false;
    ended_ = !averages_at_end_;
    later_.clear();
  }
  void BeginPart() override { since_ = step_.Now(); }

  void EndPart(SpanKind kind, std::string label) override {
    const double now = step_.Now();
    step_.timeline.Add(
        {kind, std::string(LaneName(Lane::kCompute)), std::move(label), since_, now, 0});
    since_ = now;
  }

  // A part of backward ends at the announcement of a gradient, so only a wait can be interrupted.
  void SetInterrupted(std::optional<SpanKind> kind) override {
    waiting_ = kind == SpanKind::kExposed;
    if (!waiting_) return;
    BeginPart();
    std::vector<LiveOp*> averages;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      averages.swap(later_);
    }
    for (LiveOp* const each : averages) Start(*each);
  }

  void Announce(std::size_t) override {}

  bool HasWork() override {
    std::lock_guard lock(mutex_);
    return !queue_.empty();
  }

  Handle Work() override {
    LiveOp* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      next = queue_.front();
      queue_.pop_front();
    }
    if (waiting_) EndPart(SpanKind::kExposed, "");
    since_ = compute_.Do(*next);
    return next->handle;
  }

  double EndStep() override { return step_.Now(); }

  void Stop() noexcept override {
    side_.thread.Stop();
    host_.thread.Stop();
  }

  void Start(LiveOp& local) override {
    const Lane which = local.op->lane;
    if (local.op->If<ApplyRequest>() != nullptr) {
      std::lock_guard lock(mutex_);
      if (!ended_) return later_.push_back(&local);
    }
    if (which == Lane::kCompute) {
      {
        std::lock_guard lock(mutex_);
        queue_.push_back(&local);
      }
      return events_.ComputeWorkQueued();
    }
    ThreadLane& lane = which == Lane::kSide ? side_ : host_;
    lane.thread.Add([this, &lane, &local] {
      if (events_.Failed()) return;
      try {
        lane.work.Do(local);
        events_.Done(local.handle);
      } catch (...) {
        events_.Fail(std::current_exception());
      }
    });
  }

 private:
  struct ThreadLane {
    ThreadLane(const LaneSetup& setup, Lane lane) : work(setup, lane, pool) {}

    ThreadPool pool{1};
    HostWork work;
    LaneThread thread;
  };

  LiveStep& step_;
  LaneEvents& events_;
  const bool averages_at_end_;
  HostWork compute_;
  ThreadLane side_;
  ThreadLane host_;
  double since_ = 0;  // end of the last span on the compute lane
  bool waiting_ = false;
  std::mutex mutex_;
  std::deque<LiveOp*> queue_;  // of the compute lane
  bool ended_ = false;         // backward has ended, or averages need not wait for its end
  std::vector<LiveOp*> later_;
};

}  // namespace

std::unique_ptr<Lanes> MakeLanes(const LaneSetup& setup) {
  return setup.config.device.kind == DeviceKind::kHost ? MakeHostLanes(setup)
                                                       : MakeDeviceLanes(setup);
}

std::unique_ptr<Lanes> MakeHostLanes(const LaneSetup& setup) {
  return std::make_unique<HostLanes>(setup);
}

}  // namespace sparfuse
