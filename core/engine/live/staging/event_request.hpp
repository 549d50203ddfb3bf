// Lets a coroutine of the communication thread wait for a device: a request that is complete when a
// stream has come to a point.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "core/device/completion_thread.hpp"
#include "core/transport/communicator.hpp"

namespace sparfuse::gpu {

// Test throws what waiting for the event threw.
class EventRequest final : public Request {
 public:
  // wake: called on the thread of `completions` when Test has something new to say.
  EventRequest(CompletionThread& completions, const GpuEvent& event, std::function<void()> wake)
      : told_(std::make_shared<Told>()) {
    completions.Add(event, [told = told_, wake = std::move(wake)](std::exception_ptr error) {
      told->error = std::move(error);
      told->reached.store(true, std::memory_order_release);
      wake();
    });
  }
  bool Test() override {
    if (!told_->reached.load(std::memory_order_acquire)) return false;
    if (told_->error) std::rethrow_exception(told_->error);
    return true;
  }
  std::size_t bytes() const noexcept override { return 0; }
  int peer() const noexcept override { return -1; }

 private:
  struct Told {
    std::atomic<bool> reached{false};
    std::exception_ptr error;
  };
  std::shared_ptr<Told> told_;  // also the completion thread's: a request may be given up
};

}  // namespace sparfuse::gpu
