#include "core/base/thread_pool.hpp"

#include <atomic>
#include <exception>
#include <system_error>

#include "core/base/error.hpp"

namespace sparfuse {

struct ThreadPool::Job {
  const std::function<void(std::size_t, int)>* body = nullptr;
  std::size_t chunks = 0;
  std::atomic<std::size_t> next{0};
  std::size_t active = 0;  // workers inside RunChunks; guarded by mutex_
  std::mutex error_mutex;
  std::exception_ptr error;
};

ThreadPool::ThreadPool(int threads) {
  SPARFUSE_REQUIRE(threads >= 1 && threads <= kMostThreads, "a pool of ", threads,
                   " threads: expected 1 to ", kMostThreads);
  workers_.reserve(static_cast<std::size_t>(threads));
  for (int worker = 1; worker < threads; ++worker) {
    try {
      workers_.emplace_back([this, worker] { Work(worker); });
    } catch (const std::system_error& error) {
      Stop();  // an unjoined thread would end the process
      SPARFUSE_THROW(kUnsupported, "a pool of ", threads, " threads: ", worker,
                     " run and no other can be started (", error.what(), "): expected at most ",
                     worker);
    }
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::RunChunks(Job& job, int worker) {
  for (;;) {
    const std::size_t chunk = job.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= job.chunks) return;
    try {
      (*job.body)(chunk, worker);
    } catch (...) {
      std::lock_guard lock(job.error_mutex);
      if (!job.error) job.error = std::current_exception();
      job.next.store(job.chunks, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::Work(int worker) {
  std::size_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (job_ != nullptr && generation_ != seen); });
    if (stop_) return;
    seen = generation_;
    Job& job = *job_;
    ++job.active;
    lock.unlock();
    RunChunks(job, worker);
    lock.lock();
    if (--job.active == 0) done_.notify_all();
  }
}

void ThreadPool::ParallelFor(std::size_t chunks,
                             const std::function<void(std::size_t, int)>& body) {
  if (chunks == 0) return;
  if (workers_.empty() || chunks == 1) {
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  std::lock_guard serialise(caller_);
  Job job;
  job.body = &body;
  job.chunks = chunks;
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    ++generation_;
  }
  wake_.notify_all();
  RunChunks(job, 0);
  std::unique_lock lock(mutex_);
  job_ = nullptr;  // workers that wake late must not join a finished job
  done_.wait(lock, [&] { return job.active == 0; });
  lock.unlock();
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace sparfuse
