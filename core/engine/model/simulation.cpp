#include "core/engine/model/simulation.hpp"

#include <algorithm>

namespace sparfuse {

void Simulation::At(double time, Callback callback) {
  events_.push({std::max(time, now_), order_++, std::move(callback)});
}

void Simulation::Run() {
  while (!events_.empty()) {
    // The top is const only to protect its order, and it leaves the queue at once.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.time;
    event.callback();
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

void SharedResource::Use(double work, Simulation::Callback done) {
  if (work <= 0) return simulation_.After(0, std::move(done));
  Advance();
  activities_.push({virtual_now_ + work, order_++, std::move(done)});
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
  // The event was made for the top; rounding may have left it a hair short.
  virtual_now_ = std::max(virtual_now_, activities_.top().virtual_end);
  Simulation::Callback done = std::move(const_cast<Activity&>(activities_.top()).done);
  activities_.pop();
  ScheduleNext();
  done();
}

}  // namespace sparfuse
