// The emulated device behind runtime.hpp.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace sparfuse::gpu::emulated {

// A thread that does what it is given, in order. An error ends it: it does nothing more, and every
// later call throws that error.
class Queue {
 public:
  Queue();
  ~Queue();  // does what is left first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(std::function<void()> work);
  void Synchronize();
  // While recording, Add keeps work in a list.
  void BeginRecording();
  std::vector<std::function<void()>> EndRecording();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool stop_ = false;
  bool recording_ = false;
  std::vector<std::function<void()>> recorded_;
  std::exception_ptr error_;
  std::thread thread_;
};

// One record of an event.
class Mark {
 public:
  void Reach();
  bool reached() const;
  void Wait() const;
  double seconds() const;  // of a steady clock; reached

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  double seconds_ = 0;
};

void* Allocate(std::size_t bytes, std::string_view what);
void Free(void* pointer) noexcept;

}  // namespace sparfuse::gpu::emulated
