#include "core/transport/progress.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/priority.hpp"

namespace sparfuse {
namespace {

// How long the transport may block while tasks wait: their deadlines and the end of the loop are
// looked at in between.
constexpr std::chrono::milliseconds kIdleLimit{1};
// How often probes are looked at while something is active.
constexpr std::chrono::milliseconds kServiceInterval{5};
// How late a probe may be answered while nothing is active.
constexpr std::chrono::milliseconds kProbeInterval{50};
constexpr std::chrono::milliseconds kLongestGrace{2000};

// The last part of the deadline, in which probes must be answered.
std::chrono::milliseconds Grace(std::chrono::milliseconds deadline) {
  return std::min(kLongestGrace, deadline / 3);
}

}  // namespace

ProgressLoop::ProgressLoop(Setup setup, std::chrono::milliseconds deadline) : deadline_(deadline) {
  SPARFUSE_REQUIRE(deadline.count() > 0, "deadline of " + std::to_string(deadline.count()) +
                                             " ms: expected a positive number");
  thread_ = std::thread([this, setup = std::move(setup)]() mutable { Run(std::move(setup)); });
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return started_; });
  if (setup_error_) {
    lock.unlock();
    thread_.join();
    std::rethrow_exception(setup_error_);
  }
}

ProgressLoop::~ProgressLoop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ProgressLoop::Start(Make make, Done done) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back({std::move(make), std::move(done)});
  }
  wake_.notify_all();  // it waits for commands alone, or
  world_->Wake();      // for messages too
}

void ProgressLoop::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancel_ = true;
  }
  wake_.notify_all();
  world_->Wake();
}

void ProgressLoop::RunBlocking(Make make) {
  assert(std::this_thread::get_id() != thread_.get_id());
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr failure;
  Start(std::move(make), [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    failure = std::move(error);  // the caller's alone from here on
    ended = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended; });
  if (failure) std::rethrow_exception(std::move(failure));
}

void ProgressLoop::Run(Setup setup) {
  RaiseThisThread();
  std::exception_ptr error;
  try {
    world_ = setup();
    rank_ = world_->rank();
    size_ = world_->size();
  } catch (...) {
    error = std::current_exception();
  }
  setup = nullptr;
  {
    std::lock_guard lock(mutex_);
    setup_error_ = error;
    started_ = true;
  }
  wake_.notify_all();
  if (error) return;
  try {
    liveness_ = std::make_unique<Liveness>(world_->host().Split(0, rank_, deadline_));
  } catch (...) {
    broken_ = std::current_exception();
  }
  Serve();
  active_.clear();
  liveness_.reset();
  world_.reset();
}

void ProgressLoop::Serve() {
  Clock::time_point serviced{};
  while (!TakeCommands()) {
    const bool moved = Advance();
    const auto now = Clock::now();
    if (liveness_ && (active_.empty() || now - serviced >= kServiceInterval)) {
      liveness_->Service(WaitingFor());
      serviced = now;
    }
    if (!moved && !active_.empty()) world_->Idle(kIdleLimit);
  }
}

bool ProgressLoop::TakeCommands() {
  std::deque<Command> commands;
  bool cancel = false;
  {
    std::unique_lock lock(mutex_);
    if (active_.empty()) {
      wake_.wait_for(
          lock,
          std::min(kProbeInterval, std::max(Grace(deadline_) / 5, std::chrono::milliseconds(1))),
          [&] { return stop_ || cancel_ || !commands_.empty(); });
    }
    if (stop_) return true;
    commands.swap(commands_);
    cancel = std::exchange(cancel_, false);
  }
  for (Command& command : commands) {
    std::exception_ptr error = broken_;
    if (!error) {
      Active& active = active_.emplace_back();
      active.make = std::move(command.make);
      active.done = command.done;
      try {
        active.task = active.make(*world_);
      } catch (...) {
        error = std::current_exception();
        active_.pop_back();
      }
    }
    if (error) command.done(std::move(error));
  }
  if (cancel) CancelActive();
  return false;
}

void ProgressLoop::CancelActive() {
  const auto error = std::make_exception_ptr(
      Error(FailureKind::kComm, "given up after an error on rank " + std::to_string(rank_)));
  for (std::list<Active> given_up = std::exchange(active_, {}); !given_up.empty();) {
    const Done done = std::move(given_up.front().done);
    given_up.pop_front();
    done(error);
  }
}

// True when a task went on or ended.
bool ProgressLoop::Advance() {
  bool moved = false;
  for (auto it = active_.begin(); it != active_.end();) {
    std::exception_ptr error;
    bool ended = false;
    try {
      const bool complete = AdvanceOne(*it);
      moved = moved || complete;
      if (complete) {
        ended = it->task.Resume(it->pending);
        if (ended) it->task.RethrowIfFailed();
      } else {
        CheckDeadline(*it);
      }
    } catch (...) {
      error = std::current_exception();
      ended = true;
    }
    if (!ended) {
      ++it;
      continue;
    }
    moved = true;
    const Done done = std::move(it->done);
    it = active_.erase(it);  // buffers are free before the caller hears of it
    done(std::move(error));
  }
  return moved;
}

// True when all that the task waits for is complete.
bool ProgressLoop::AdvanceOne(Active& active) {
  bool complete = true;
  for (const auto& request : active.pending.requests) {
    if (request->Test()) continue;
    if (complete) {
      active.waiting_for = request->peer() >= 0 ? request->peer() : Liveness::kNativeCollective;
    }
    complete = false;
  }
  if (complete) active.waiting_for = Liveness::kNothing;
  return complete;
}

void ProgressLoop::CheckDeadline(Active& active) {
  const auto now = Clock::now();
  const auto waited = now - active.pending.since;
  if (waited <= deadline_ - Grace(deadline_)) return;
  if (active.pinged < active.pending.since) {
    active.pinged = now;
    liveness_->PingAll(active.waiting_for);
  }
  // A full grace from the ping on: this rank itself may have been the one that slept.
  if (waited <= deadline_ || now - active.pinged < Grace(deadline_)) return;
  SPARFUSE_THROW(kTimeout, "no progress for " + std::to_string(deadline_.count()) +
                               " ms: " + liveness_->Describe(active.waiting_for, active.pinged));
}

int ProgressLoop::WaitingFor() const {
  return active_.empty() ? Liveness::kNothing : active_.front().waiting_for;
}

}  // namespace sparfuse
