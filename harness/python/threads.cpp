#include "harness/python/threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse::python {
namespace {

struct State {
  std::mutex mutex;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  std::shared_ptr<ThreadPool> pool;  // made on first use
};

// Never destroyed: threads of Python may still be at work when the process ends.
State& GlobalState() {
  static State& state = *[] {
    // The threads of a pool do not survive a fork: the child must neither use nor join them.
    pthread_atfork([] { GlobalState().mutex.lock(); }, [] { GlobalState().mutex.unlock(); },
                   [] {
                     State& own = GlobalState();
                     if (own.pool) new std::shared_ptr<ThreadPool>(std::move(own.pool));
                     own.pool = nullptr;
                     own.mutex.unlock();
                   });
    return new State;
  }();
  return state;
}

}  // namespace

std::shared_ptr<ThreadPool> ModulePool() {
  State& state = GlobalState();
  const std::lock_guard lock(state.mutex);
  if (!state.pool) state.pool = std::make_shared<ThreadPool>(state.threads);
  return state.pool;
}

void SetThreads(int threads) {
  SPARFUSE_REQUIRE(threads >= 1 && threads <= kMostThreads,
                   "set_threads(" + std::to_string(threads) + "): expected 1 to " +
                       std::to_string(kMostThreads));
  State& state = GlobalState();
  std::shared_ptr<ThreadPool> old;  // joined after the lock is gone
  const std::lock_guard lock(state.mutex);
  state.threads = threads;
  old = std::exchange(state.pool, nullptr);
}

int Threads() {
  State& state = GlobalState();
  const std::lock_guard lock(state.mutex);
  return state.threads;
}

}  // namespace sparfuse::python
