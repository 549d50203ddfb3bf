// Runs jobs in the order in which they are given, on a thread that is made with the first.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sparfuse {

class LaneThread {
 public:
  LaneThread() = default;
  ~LaneThread() { Stop(); }
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // job: must not throw.
  void Add(std::function<void()> job);
  // Waits for the job at hand; the others are dropped, and so are those that are added later.
  void Stop() noexcept;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sparfuse
