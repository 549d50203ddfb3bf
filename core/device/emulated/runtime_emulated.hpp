// Declares the emulated device: the streams of DeviceKind::kEmulated and the functions for tests.
//
// The emulated device runs kernels on the host, thread by thread. Its memory is host memory. A
// stream is a thread with a queue, so that work that CUDA leaves unordered races here too. A stream
// whose `native` is null runs work at once. The emulated device says nothing about speed. It is a
// library of its own, which tests alone are linked with: no trial can run on it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/device.hpp"

namespace sparfuse::gpu {

// Sets the total memory of the emulated device. Bytes that are already allocated count.
void SetEmulatedMemory(std::size_t bytes);
std::size_t EmulatedMemoryInUse();
// The number of allocations so far.
std::size_t EmulatedAllocations();

namespace emulated {

class Mark;

// A thread that runs the work that it is given, in order. After an error it runs nothing more.
// Every later call throws that error, and so do waits for marks that the thread has not reached.
class Queue {
 public:
  Queue();
  ~Queue();  // runs the remaining work first
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
    std::shared_ptr<Mark> mark;  // reached if `run` is empty
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
  // Both throw the error that the mark failed with.
  bool reached() const;
  void Wait() const;
  double seconds() const;  // of a steady clock; precondition: reached

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  std::exception_ptr error_;
  double seconds_ = 0;
};

// Gives work to a stream of the emulated device.
void Enqueue(const Stream& stream, std::function<void()> work);

}  // namespace emulated
}  // namespace sparfuse::gpu
