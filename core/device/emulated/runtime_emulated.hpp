// Declares the emulated device: the streams of DeviceKind::kEmulated and what tests may ask of it.
//
// The emulated device runs kernels on the host, thread by thread. Its memory is host memory; a
// stream is a thread with a queue, so that what CUDA would leave unordered is a race here too; a
// stream whose `native` is null runs at once. It says nothing about speed. It is a library of its
// own, which tests alone are linked with: no trial can run on it.
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

// Bytes that the emulated device has from now on, in all: what is allocated already counts.
void SetEmulatedMemory(std::size_t bytes);
std::size_t EmulatedMemoryInUse();
// How many allocations there have been.
std::size_t EmulatedAllocations();

namespace emulated {

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

// Gives work to a stream of the emulated device.
void Enqueue(const Stream& stream, std::function<void()> work);

}  // namespace emulated
}  // namespace sparfuse::gpu
