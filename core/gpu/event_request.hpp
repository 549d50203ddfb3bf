// A request that is complete when a stream has come to a point: how a coroutine of the
// communication thread waits for a device.
#pragma once

#include "core/gpu/runtime.hpp"
#include "core/transport/communicator.hpp"

namespace sparfuse::gpu {

class EventRequest final : public Request {
 public:
  explicit EventRequest(const GpuEvent& event) : event_(event) {}
  bool Test() override { return event_.Done(); }
  std::size_t bytes() const noexcept override { return 0; }
  int peer() const noexcept override { return -1; }

 private:
  const GpuEvent& event_;
};

}  // namespace sparfuse::gpu
