// Declares the clock of a discrete-event simulation, and resources that its activities share.
#pragma once

#include <algorithm>
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
  void At(double time, Callback callback) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(callbacks_.size());
      callbacks_.push_back(std::move(callback));
    } else {
      slot = free_.back();
      free_.pop_back();
      callbacks_[slot] = std::move(callback);
    }
    events_.push({std::max(time, now_), order_++, slot});
  }

  void After(double seconds, Callback callback) { At(now_ + seconds, std::move(callback)); }
  // Runs events until none is scheduled.
  void Run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      const Callback callback = std::move(callbacks_[event.slot]);
      free_.push_back(event.slot);
      callback();
    }
  }

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
  void Use(double work, Simulation::Callback done, double share = 1) {
    if (share <= 0 && !released_) {
      held_.emplace_back(work, std::move(done));
      return;
    }
    if (work <= 0) return simulation_.After(0, std::move(done));
    Advance();
    activities_.push(
        {virtual_now_ + work / (released_ ? 1 : share), order_++, share, std::move(done)});
    ScheduleNext();
  }

  // From now on every unit works at this rate, at least 0; 1 to begin with.
  void SetSpeed(double speed) {
    if (speed == speed_) return;
    Advance();
    speed_ = speed;
    ScheduleNext();
  }

  // Release: from now on all activities get their whole even part. Hold: their shares again.
  void Release() {
    if (std::exchange(released_, true)) return;
    Advance();
    std::priority_queue<Activity> whole;
    for (; !activities_.empty(); activities_.pop()) {
      Activity each = std::move(const_cast<Activity&>(activities_.top()));
      each.virtual_end = virtual_now_ + (each.virtual_end - virtual_now_) * each.share;
      whole.push(std::move(each));
    }
    activities_ = std::move(whole);
    ScheduleNext();
    for (auto& [work, done] : std::exchange(held_, {})) Use(work, std::move(done), 0);
  }

  void Hold() {
    if (!std::exchange(released_, false)) return;
    Advance();
    std::priority_queue<Activity> shared;
    for (; !activities_.empty(); activities_.pop()) {
      Activity each = std::move(const_cast<Activity&>(activities_.top()));
      const double left = each.virtual_end - virtual_now_;
      if (each.share <= 0) {
        held_.emplace_back(std::max(0.0, left), std::move(each.done));
        continue;
      }
      if (each.share != 1) each.virtual_end = virtual_now_ + left / each.share;
      shared.push(std::move(each));
    }
    activities_ = std::move(shared);
    ScheduleNext();
  }

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
  double Rate() const {
    const auto active = static_cast<double>(activities_.size());
    return speed_ * (capacity_ <= 0 || active <= capacity_ ? 1.0 : capacity_ / active);
  }

  void Advance() {
    virtual_now_ += (simulation_.now() - updated_) * Rate();
    updated_ = simulation_.now();
  }

  void ScheduleNext() {
    const std::uint64_t generation = ++generation_;
    if (activities_.empty() || speed_ <= 0) return;
    const double delay = (activities_.top().virtual_end - virtual_now_) / Rate();
    simulation_.After(std::max(0.0, delay), [this, generation] { FinishDue(generation); });
  }

  void FinishDue(std::uint64_t generation) {
    if (generation != generation_) return;
    Advance();
    // The event is due at the top's end, but rounding may have left it slightly short.
    virtual_now_ = std::max(virtual_now_, activities_.top().virtual_end);
    Simulation::Callback done = std::move(const_cast<Activity&>(activities_.top()).done);
    activities_.pop();
    ScheduleNext();
    done();
  }

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
