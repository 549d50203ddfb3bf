#include "core/engine/model/simulation.hpp"

#include <algorithm>

namespace sparfuse {

void Simulation::At(double time, Callback callback) {
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

void Simulation::Run() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    const Callback callback = std::move(callbacks_[event.slot]);
    free_.push_back(event.slot);
    callback();
  }
}

double SharedResource::Rate() const {
  const auto active = static_cast<double>(activities_.size());
  return speed_ * (capacity_ <= 0 || active <= capacity_ ? 1.0 : capacity_ / active);
}

void SharedResource::Advance() {
  virtual_now_ += (simulation_.now() - updated_) * Rate();
  updated_ = simulation_.now();
}

void SharedResource::Use(double work, Simulation::Callback done, double share) {
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

void SharedResource::Release() {
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

void SharedResource::Hold() {
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

void SharedResource::SetSpeed(double speed) {
  if (speed == speed_) return;
  Advance();
  speed_ = speed;
  ScheduleNext();
}

void SharedResource::ScheduleNext() {
  const std::uint64_t generation = ++generation_;
  if (activities_.empty() || speed_ <= 0) return;
  const double delay = (activities_.top().virtual_end - virtual_now_) / Rate();
  simulation_.After(std::max(0.0, delay), [this, generation] { FinishDue(generation); });
}

void SharedResource::FinishDue(std::uint64_t generation) {
  if (generation != generation_) return;
  Advance();
  // The event is due at the top's end, but rounding may have left it slightly short.
  virtual_now_ = std::max(virtual_now_, activities_.top().virtual_end);
  Simulation::Callback done = std::move(const_cast<Activity&>(activities_.top()).done);
  activities_.pop();
  ScheduleNext();
  done();
}

}  // namespace sparfuse
