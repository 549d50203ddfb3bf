// Defines coroutines for communication. A collective is sequential code that awaits requests, and
// the rank's communication thread advances many collectives at once.
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// The requests that a suspended coroutine waits for. The driver polls them, and destroys them
// before the Task, because requests point into buffers of the coroutine's frame.
struct PendingRequests {
  std::vector<std::unique_ptr<Request>> requests;
  std::chrono::steady_clock::time_point since;  // when the wait began
};

// A lazily started coroutine without result. Errors are rethrown to the awaiter, or by
// RethrowIfFailed() at the root. Destroying an unfinished Task destroys its frame and the frames of
// the tasks that it awaits. An empty Task counts as ended.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<promise_type> awaiter;  // null at the root
    promise_type* root = this;
    std::exception_ptr error;
    // At the root only: the innermost coroutine of the chain, and the driver's requests.
    std::coroutine_handle<promise_type> leaf;
    PendingRequests* pending = nullptr;

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct FinalAwaiter {
      bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        auto& promise = self.promise();
        if (promise.awaiter) promise.root->leaf = promise.awaiter;
      }
      void await_resume() noexcept {}
    };
    FinalAwaiter final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // co_await task: runs it to its end inside the awaiting coroutine. The awaited Task must not have
  // been started.
  struct Awaiter {
    Handle child;
    bool await_ready() noexcept { return !child; }
    // Suspends to Resume's loop, which continues with the new leaf. (Symmetric transfer would need
    // no loop, but g++ turns it into a jump only when it optimises. In debug and sanitizer builds,
    // long chains of tasks that never wait would overflow the stack.)
    void await_suspend(Handle parent) noexcept {
      auto& promise = child.promise();
      promise.awaiter = parent;
      promise.root = parent.promise().root;
      promise.root->leaf = child;
    }
    void await_resume() {
      if (child && child.promise().error) std::rethrow_exception(child.promise().error);
    }
  };
  Awaiter operator co_await() noexcept { return {handle_}; }

  // Root only: runs until the chain waits for the requests in `pending`, or ends. Returns true if
  // it ended. If the chain waited before, all of `pending` must be complete.
  bool Resume(PendingRequests& pending) {
    if (!handle_ || handle_.done()) return true;
    auto& promise = handle_.promise();
    promise.pending = &pending;
    if (!promise.leaf) promise.leaf = handle_;
    do {
      promise.leaf.resume();
    } while (!handle_.done() && pending.requests.empty());
    return handle_.done();
  }
  void RethrowIfFailed() const {
    if (handle_ && handle_.done() && handle_.promise().error) {
      std::rethrow_exception(handle_.promise().error);
    }
  }

 private:
  Handle handle_;
};

// co_await Complete(a, b, ...): suspends until every request is complete, then returns them in the
// order given, so that received sizes can be read.
class Complete {
 public:
  template <class... R>
  explicit Complete(R... requests) {
    requests_.reserve(sizeof...(requests));
    (requests_.push_back(std::move(requests)), ...);
  }
  explicit Complete(std::vector<std::unique_ptr<Request>> requests)
      : requests_(std::move(requests)) {}

  bool await_ready() {
    bool ready = true;  // test all: each test may start work, and may find a lost peer
    for (auto& request : requests_) ready = request->Test() && ready;
    return ready;
  }
  void await_suspend(Task::Handle self) {
    pending_ = self.promise().root->pending;
    pending_->requests = std::move(requests_);
    pending_->since = std::chrono::steady_clock::now();
  }
  std::vector<std::unique_ptr<Request>> await_resume() {
    return pending_ == nullptr ? std::move(requests_) : std::exchange(pending_->requests, {});
  }

 private:
  std::vector<std::unique_ptr<Request>> requests_;
  PendingRequests* pending_ = nullptr;
};

}  // namespace sparfuse
