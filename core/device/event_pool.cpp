#include "core/device/event_pool.hpp"

namespace sparfuse::gpu {

const GpuEvent& EventPool::Record(const Stream& stream) {
  GpuEvent* event = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (used_ == events_.size()) events_.emplace_back(device_);
    event = &events_[used_++];
  }
  event->Record(stream);
  return *event;
}

void EventPool::Reset() {
  std::lock_guard lock(mutex_);
  used_ = 0;
}

std::size_t EventPool::made() const {
  std::lock_guard lock(mutex_);
  return events_.size();
}

}  // namespace sparfuse::gpu
