// Declares the clock of a discrete-event simulation, and resources that its activities share.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace sparfuse {

class Simulation {
 public:
  using Callback = std::function<void()>;

  double now() const noexcept { return now_; }
  // Events at equal times run in the order in which they were scheduled.
  void At(double time, Callback callback);
  void After(double seconds, Callback callback) { At(now_ + seconds, std::move(callback)); }
  // Runs events until none is scheduled.
  void Run();

 private:
  struct Event {
    double time;
    std::uint64_t order;
    std::uint32_t slot;                         // of callbacks_
    bool operator<(const Event& other) const {  // std::priority_queue keeps the largest on top
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  std::vector<Callback> callbacks_;  // by slot: they do not move while the queue is sorted
  std::vector<std::uint32_t> free_;  // slots
  double now_ = 0;
  std::uint64_t order_ = 0;
};

// A resource of `capacity` units that work at rate 1 each, shared evenly: each of n > capacity
// activities advances at capacity / n. Times are kept in virtual seconds, which advance at the
// common rate, so that an arrival or a departure costs O(log n).
class SharedResource {
 public:
  // capacity > 0, or infinite when <= 0.
  SharedResource(Simulation& simulation, double capacity)
      : simulation_(simulation), capacity_(capacity) {}

  // Calls `done` when this activity has received `work` seconds of one unit. Until Release it gets
  // at most the fraction `share`, 0 to 1, of its even part. With 0 it waits, and takes nothing from
  // others.
  void Use(double work, Simulation::Callback done, double share = 1);
  // From now on every unit works at this rate, at least 0; 1 to begin with.
  void SetSpeed(double speed);
  // Release: from now on all activities get their whole even part. Hold: their shares again.
  void Release();
  void Hold();

 private:
  struct Activity {
    double virtual_end;
    std::uint64_t order;
    double share;
    Simulation::Callback done;
    bool operator<(const Activity& other) const {
      return virtual_end != other.virtual_end ? virtual_end > other.virtual_end
                                              : order > other.order;
    }
  };
  double Rate() const;
  void Advance();
  void ScheduleNext();
  void FinishDue(std::uint64_t generation);

  Simulation& simulation_;
  double capacity_;
  double speed_ = 1;
  std::priority_queue<Activity> activities_;
  std::vector<std::pair<double, Simulation::Callback>> held_;  // work of activities without a share
  bool released_ = false;
  double virtual_now_ = 0;
  double updated_ = 0;  // simulation time of virtual_now_
  std::uint64_t order_ = 0;
  std::uint64_t generation_ = 0;  // outdates scheduled completions
};

}  // namespace sparfuse
