// Keeps events that a step records and the next one records again.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "core/device/runtime.hpp"

namespace sparfuse::gpu {

// Any thread may record. Once a step has run, one that records no more events makes none.
class EventPool {
 public:
  explicit EventPool(Device device) : device_(device) {}

  // Valid until Reset.
  const GpuEvent& Record(const Stream& stream);
  // Precondition: all that were recorded are done, and nobody waits for them.
  void Reset();
  std::size_t made() const;

 private:
  Device device_;
  mutable std::mutex mutex_;
  std::deque<GpuEvent> events_;
  std::size_t used_ = 0;
};

}  // namespace sparfuse::gpu
