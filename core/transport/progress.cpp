#include "core/transport/progress.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

namespace {

constexpr int kTag = 0;

std::string ListRanks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// Names the rank that holds up rank `own`, which waits for `waiting_for`: the end of the chain of
// waiting ranks. of(r): the rank that rank r waits for.
template <class Of>
std::string EndOfChain(int waiting_for, int own, std::size_t ranks, const Of& of) {
  int culprit = waiting_for;
  for (std::size_t hops = 0; hops < ranks; ++hops) {
    const int next = of(culprit);
    if (next < 0 || next == own) break;
    culprit = next;
  }
  return ListRanks({culprit}) + " answers but did not send";
}

// Longest time for which the transport may block while tasks wait. In between, their deadlines and
// the end of the loop are checked.
constexpr std::chrono::milliseconds kIdleLimit{1};
// Interval for checking probes while something is active.
constexpr std::chrono::milliseconds kServiceInterval{5};
// Both intervals hold up to this number of ranks. More ranks check less often: they may share a
// machine, and each checks all others.
constexpr int kFewRanks = 16;
// Longest delay of an answer to a probe while nothing is active.
constexpr std::chrono::milliseconds kProbeInterval{50};
constexpr std::chrono::milliseconds kLongestGrace{2000};
// Idle limit of a thread that serves many ranks. Every event wakes it.
constexpr std::chrono::milliseconds kSharedIdleLimit{5};

// The last part of the deadline, in which probes must be answered.
std::chrono::milliseconds Grace(std::chrono::milliseconds deadline) {
  return std::min(kLongestGrace, deadline / 3);
}

// Returns an interval of few ranks for `ranks` of them: longer in proportion, but a tenth of the
// grace at most.
std::chrono::milliseconds ForRanks(std::chrono::milliseconds interval, int ranks,
                                   std::chrono::milliseconds deadline) {
  if (ranks <= kFewRanks) return interval;
  return std::clamp(interval * ranks / kFewRanks, interval,
                    std::max(interval, Grace(deadline) / 10));
}

}  // namespace

Liveness::Liveness(std::unique_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      peers_(static_cast<std::size_t>(communicator_->size())) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    if (rank == communicator_->rank()) continue;
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.receive =
        communicator_->Irecv(rank, kTag, std::as_writable_bytes(std::span(&peer.inbox, 1)));
  }
}

void Liveness::Service(int waiting_for) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    try {
      while (peer.receive && peer.receive->Test()) {
        const Message message = peer.inbox;
        peer.last_heard = std::chrono::steady_clock::now();
        peer.waiting_for = message.waiting_for;
        peer.receive =
            communicator_->Irecv(rank, kTag, std::as_writable_bytes(std::span(&peer.inbox, 1)));
        if (message.wants_answer != 0) Send(rank, {0, waiting_for});
      }
    } catch (const Error&) {
      peer.receive.reset();
      peer.last_heard = {};
    }
  }
  std::erase_if(outgoing_, [](Outgoing& outgoing) {
    try {
      return outgoing.send->Test();
    } catch (const Error&) {
      return true;
    }
  });
}

void Liveness::PingAll(int waiting_for) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    if (!peers_[static_cast<std::size_t>(rank)].receive) continue;
    try {
      Send(rank, {1, waiting_for});
    } catch (const Error&) {
      peers_[static_cast<std::size_t>(rank)].receive.reset();
    }
  }
}

void Liveness::Send(int peer, Message message) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.message = message;
  try {
    outgoing.send =
        communicator_->Isend(peer, kTag, std::as_bytes(std::span(&outgoing.message, 1)));
  } catch (...) {
    outgoing_.pop_back();
    throw;
  }
}

std::string Liveness::Describe(int waiting_for,
                               std::chrono::steady_clock::time_point pinged) const {
  std::vector<int> silent;
  std::vector<int> idle;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == communicator_->rank()) continue;
    if (!peer.receive || peer.last_heard < pinged) {
      silent.push_back(rank);
    } else if (peer.waiting_for == kNothing) {
      idle.push_back(rank);
    }
  }
  if (!silent.empty()) {
    return ListRanks(silent) + (silent.size() == 1 ? " does not answer" : " do not answer");
  }
  if (waiting_for < 0) {  // a native collective, which does not inform its peers
    if (idle.empty()) return "all ranks answer and wait for the backend's own collective";
    return ListRanks(idle) + (idle.size() == 1 ? " answers" : " answer") + " but did not take part";
  }
  return EndOfChain(waiting_for, communicator_->rank(), peers_.size(),
                    [&](int rank) { return peers_[static_cast<std::size_t>(rank)].waiting_for; });
}

Task SplitOff(Communicator& from, int color, int key, std::chrono::milliseconds deadline,
              std::unique_ptr<Communicator>& into) {
  if (auto arrived = from.StartSplit(color, key)) {
    co_await Complete(std::move(arrived));
    into = from.EndSplit();
  } else {
    into = from.Split(color, key, deadline);
  }
}

SharedProgress::SharedProgress(int ranks, int threads)
    : ranks_(ranks), waiting_for_(static_cast<std::size_t>(ranks)) {
  for (std::atomic<int>& each : waiting_for_) each = Liveness::kNothing;
  for (int i = 0; i < std::min(ranks, threads); ++i) {
    Server& server = *servers_.emplace_back(std::make_unique<Server>());
    server.thread = std::thread([&server] { Serve(server); });
  }
}

SharedProgress::~SharedProgress() {
  for (const auto& server : servers_) {
    {
      const std::lock_guard lock(server->mutex);
      server->stop = true;
    }
    server->bell.Ring();
    server->thread.join();
  }
}

std::vector<Doorbell*> SharedProgress::bells() {
  std::vector<Doorbell*> bells;
  for (int rank = 0; rank < ranks_; ++rank) bells.push_back(&ServerOf(rank).bell);
  return bells;
}

SharedProgress::Server& SharedProgress::ServerOf(int rank) {
  const auto of_all = static_cast<std::size_t>(rank) * servers_.size();
  return *servers_[of_all / static_cast<std::size_t>(ranks_)];
}

void SharedProgress::Add(ProgressLoop& loop, int rank) {
  Server& server = ServerOf(rank);
  const std::lock_guard lock(server.mutex);
  server.loops.push_back(&loop);
}

void SharedProgress::Remove(ProgressLoop& loop, int rank) {
  Server& server = ServerOf(rank);
  const std::lock_guard lock(server.mutex);
  std::erase(server.loops, &loop);
}

void SharedProgress::Serve(Server& server) {
  RaiseThisThread();
  for (;;) {
    bool moved = false, waits = false;
    {
      const std::lock_guard lock(server.mutex);
      if (server.stop) return;
      for (ProgressLoop* loop : server.loops) {
        moved = loop->Turn() || moved;
        waits = waits || loop->waits();
      }
    }
    // Every event rings; in between, deadlines are checked.
    if (!moved) {
      const std::chrono::nanoseconds limit = waits ? kSharedIdleLimit : kProbeInterval;
      server.bell.Wait(MonotonicNanoseconds() + limit.count());
    }
  }
}

ProgressLoop::ProgressLoop(Setup setup, std::chrono::milliseconds deadline) : deadline_(deadline) {
  SPARFUSE_REQUIRE(deadline.count() > 0, "deadline of ", deadline.count(),
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

ProgressLoop::ProgressLoop(std::unique_ptr<Communicator> world, std::chrono::milliseconds deadline,
                           SharedProgress& shared)
    : deadline_(deadline),
      shared_(&shared),
      world_(std::move(world)),
      rank_(world_->rank()),
      size_(world_->size()) {
  SPARFUSE_REQUIRE(deadline.count() > 0, "deadline of ", deadline.count(),
                   " ms: expected a positive number");
  shared_->Add(*this, rank_);
}

ProgressLoop::~ProgressLoop() {
  if (shared_ != nullptr) {
    shared_->Remove(*this, rank_);
    active_.clear();
    world_.reset();
    return;
  }
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
    asked_ = true;
  }
  wake_.notify_all();  // the loop waits for commands alone, or
  world_->Wake();      // for messages too
}

void ProgressLoop::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancel_ = asked_ = true;
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
    failure = std::move(error);  // from here on only the caller uses it
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
  const auto service_interval = ForRanks(kServiceInterval, size_, deadline_);
  // Threads ring when an operation ends; other backends may have to be polled.
  const bool rung = world_->host().backend() == "threads";
  const auto idle_limit = rung ? ForRanks(kIdleLimit, size_, deadline_) : kIdleLimit;
  const bool few = size_ <= kFewRanks;
  while (!TakeCommands()) {
    const bool moved = Advance();
    const auto now = Clock::now();
    const bool due = now - serviced >= service_interval;
    if (liveness_ && (due || (few && active_.empty()))) {
      liveness_->Service(WaitingFor());
      serviced = now;
    }
    if (!moved && !active_.empty()) world_->Idle(idle_limit);
  }
}

bool ProgressLoop::Turn() {
  const bool asked = asked_;
  if (asked) MakeActive();
  const bool moved = Advance();
  shared_->waiting_for_[static_cast<std::size_t>(rank_)] = WaitingFor();
  return asked || moved;
}

bool ProgressLoop::TakeCommands() {
  {
    std::unique_lock lock(mutex_);
    if (active_.empty()) {
      wake_.wait_for(
          lock,
          std::min(kProbeInterval, std::max(Grace(deadline_) / 5, std::chrono::milliseconds(1))),
          [&] { return stop_ || cancel_ || !commands_.empty(); });
    }
    if (stop_) return true;
  }
  MakeActive();
  return false;
}

void ProgressLoop::MakeActive() {
  std::deque<Command> commands;
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
    cancel = std::exchange(cancel_, false);
    asked_ = false;
  }
  for (Command& command : commands) {
    std::exception_ptr error = broken_;
    if (!error) {
      gave_up_on_ = Liveness::kNothing;
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

// Returns whether a task went on or ended.
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
    it = active_.erase(it);  // frees the buffers before the caller learns of the end
    done(std::move(error));
  }
  return moved;
}

// Returns whether all requests that the task waits for are complete.
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
  const auto waited = now - active.pending.since - std::chrono::milliseconds(lateness_ms_);
  std::string why;
  if (shared_ != nullptr) {
    if (waited <= deadline_) return;
    const auto of = [this](int rank) {
      return shared_->waiting_for_[static_cast<std::size_t>(rank)].load();
    };
    why = active.waiting_for < 0
              ? ListRanks({rank_}) + " does not end its computation"
              : EndOfChain(active.waiting_for, rank_, static_cast<std::size_t>(size_), of);
  } else {
    if (waited <= deadline_ - Grace(deadline_)) return;
    if (active.pinged < active.pending.since) {
      active.pinged = now;
      liveness_->PingAll(active.waiting_for);
    }
    // Allows a full grace from the ping on: this rank itself may have slept.
    if (waited <= deadline_ || now - active.pinged < Grace(deadline_)) return;
    why = liveness_->Describe(active.waiting_for, active.pinged);
  }
  gave_up_on_ = active.waiting_for;
  SPARFUSE_THROW(kTimeout, "no progress for ", deadline_.count(), " ms: ", why);
}

}  // namespace sparfuse
