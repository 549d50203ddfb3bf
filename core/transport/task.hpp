// Coroutines for communication: a collective is written as straight code that awaits requests, and
// the rank's communication thread advances many of them at once.
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// What a suspended coroutine waits for. The driver polls it.
struct PendingRequests {
  std::vector<std::unique_ptr<Request>> requests;
  std::chrono::steady_clock::time_point since;  // when the wait began
};

// A lazily started coroutine without result. Errors are rethrown to the awaiter, or by
// rethrow_if_failed() at the root. Destroying an unfinished Task destroys its frame.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    PendingRequests* pending = nullptr;  // the driver's, inherited from the awaiter
    std::coroutine_handle<promise_type> awaiter;
    // The innermost suspended coroutine of this chain; only the root's is used.
    promise_type* root = this;
    std::coroutine_handle<promise_type> leaf;
    std::exception_ptr error;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct FinalAwaiter {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        auto& promise = self.promise();
        if (!promise.awaiter) return std::noop_coroutine();
        promise.root->leaf = promise.awaiter;
        return promise.awaiter;
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

  // co_await task: runs it to its end inside the awaiting coroutine.
  struct Awaiter {
    Handle child;
    bool await_ready() noexcept { return child.done(); }
    Handle await_suspend(Handle parent) noexcept {
      auto& promise = child.promise();
      promise.awaiter = parent;
      promise.root = parent.promise().root;
      promise.pending = promise.root->pending;
      promise.root->leaf = child;
      return child;
    }
    void await_resume() {
      if (child.promise().error) std::rethrow_exception(child.promise().error);
    }
  };
  Awaiter operator co_await() noexcept { return {handle_}; }

  // Root only: runs until the chain waits for requests in `pending` or ends. True when ended.
  bool Resume(PendingRequests& pending) {
    auto& promise = handle_.promise();
    promise.pending = &pending;
    if (!promise.leaf) promise.leaf = handle_;
    promise.leaf.resume();
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
    (requests_.push_back(std::move(requests)), ...);
  }
  explicit Complete(std::vector<std::unique_ptr<Request>> requests)
      : requests_(std::move(requests)) {}

  bool await_ready() {
    for (auto& request : requests_) {
      if (!request->Test()) return false;
    }
    return true;
  }
  void await_suspend(Task::Handle self) {
    auto& promise = self.promise();
    promise.root->leaf = self;
    pending_ = promise.root->pending;
    pending_->requests = std::move(requests_);
    pending_->since = std::chrono::steady_clock::now();
  }
  std::vector<std::unique_ptr<Request>> await_resume() {
    return pending_ == nullptr ? std::move(requests_) : std::move(pending_->requests);
  }

 private:
  std::vector<std::unique_ptr<Request>> requests_;
  PendingRequests* pending_ = nullptr;
};

}  // namespace sparfuse
