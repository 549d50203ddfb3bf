// Calls a function on the host when a stream has reached a point.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "core/device/runtime.hpp"

namespace sparfuse::gpu {

// Waits for events in the order in which they were added, without spinning. All events should be of
// one stream; otherwise an event may be reported late.
class CompletionThread {
 public:
  // Called on the thread, with null or the exception that waiting for the event threw. Must not
  // throw.
  using Reached = std::function<void(std::exception_ptr)>;

  CompletionThread();
  // Waits for the current event and drops the events after it.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // The event must live, and must not be recorded again, until `reached` is called.
  void Add(const GpuEvent& event, Reached reached);
  // Waits until every added event has been reported.
  void Drain();

 private:
  struct Item {
    const GpuEvent* event;
    Reached reached;
  };
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sparfuse::gpu
