// Runs jobs in the given order, on a thread that is made with the first job: the lanes' jobs, and
// jobs of collectives in parallel with the communication thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/collective/exchange_buffers.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

class LaneThread {
 public:
  LaneThread() = default;
  ~LaneThread() { Stop(); }
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // job: must not throw.
  void Add(std::function<void()> job);
  // Waits for the running job; drops the queued jobs, and those added later.
  void Stop() noexcept;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

class JobThread final : public Jobs {
 public:
  // loop: woken when a job has ended; outlives it.
  explicit JobThread(ProgressLoop& loop) : loop_(loop) {}

  std::unique_ptr<Request> Start(std::function<void()> work) override;
  // Waits for the running job; begins no other.
  void Stop() noexcept { thread_.Stop(); }

 private:
  ProgressLoop& loop_;
  LaneThread thread_;
};

}  // namespace sparfuse
