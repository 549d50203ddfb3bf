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

class Mark;

// A thread that does what it is given, in order. An error ends it: it does nothing more, every
// later call throws that error, and so do the waits for marks that it has not reached.
class Queue {
 public:
  Queue();
  ~Queue();  // does what is left first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(std::function<void()> work);
  void Add(std::shared_ptr<Mark> mark);
  void Synchronize();
  // While recording, Add keeps work in a list.
  void BeginRecording();
  std::vector<std::function<void()>> EndRecording();

 private:
  struct Work {
    std::function<void()> run;
    std::shared_ptr<Mark> mark;  // reached where there is nothing to run
  };
  void AddWork(Work work);
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
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
  void Fail(std::exception_ptr error);
  // Both throw what the mark failed with.
  bool reached() const;
  void Wait() const;
  double seconds() const;  // of a steady clock; reached

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  std::exception_ptr error_;
  double seconds_ = 0;
};

void* Allocate(std::size_t bytes, std::string_view what);
void Free(void* pointer) noexcept;

}  // namespace sparfuse::gpu::emulated
