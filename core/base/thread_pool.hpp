// Runs loops on the one thread pool of a rank. The pool's size is fixed. Its waits block, so that
// ranks that share cores do not steal time from one another by spinning.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sparfuse {

// More threads than any machine has processors; a larger number is a typing error.
inline constexpr int kMostThreads = 1024;

class ThreadPool {
 public:
  // `threads` counts the caller of ParallelFor: ThreadPool(1) starts no thread. In [1,
  // kMostThreads]. Throws Error{kUnsupported} if the system starts fewer.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(chunk, worker) once for each chunk in [0, chunks), worker in [0, threads()); chunks
  // are handed out dynamically in increasing order. Returns when all are done. Rethrows the first
  // exception of a body. One call at a time: concurrent callers queue.
  void ParallelFor(std::size_t chunks, const std::function<void(std::size_t, int)>& body);

 private:
  struct Job;
  void Work(int worker);
  void Stop();
  static void RunChunks(Job& job, int worker);

  std::mutex caller_;  // serialises ParallelFor
  std::mutex mutex_;   // guards job_, generation_, stop_
  std::condition_variable wake_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::size_t generation_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace sparfuse
