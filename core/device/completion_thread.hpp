// Tells the host when a stream has come to a point.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "core/device/runtime.hpp"

namespace sparfuse::gpu {

// Waits for events in the order in which they are given, without spinning. Events of one stream, or
// one would be told late.
class CompletionThread {
 public:
  // Called on the thread, with null or what waiting for the event threw. Must not throw.
  using Reached = std::function<void(std::exception_ptr)>;

  CompletionThread();
  // Waits for the event at hand; what comes after it is dropped.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // The event lives, and is not recorded again, until `reached` is called.
  void Add(const GpuEvent& event, Reached reached);
  // Until everything that was added has been told.
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
