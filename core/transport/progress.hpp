// The communication thread of a rank: advances collectives, answers liveness probes, and turns a
// silent peer into an error that names it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/transport/task.hpp"

namespace sparfuse {

// Everything that touches Communicators runs on this thread: factories of tasks are called here,
// tasks are resumed here, and `done` callbacks are called here.
class ProgressLoop {
 public:
  // Builds the communicators on the communication thread (MPI must be used by one thread); takes
  // ownership of nothing it did not build.
  using Setup = std::function<std::unique_ptr<Communicator>()>;

  // Starts the thread and waits until `setup` has returned. `deadline` bounds every wait of every
  // task. Throws what setup throws.
  ProgressLoop(Setup setup, std::chrono::milliseconds deadline);
  // Stops the thread. Unfinished tasks are dropped.
  ~ProgressLoop();
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  // Starts make(world) as soon as the thread gets to it. `done(error)` is called on the
  // communication thread with null or the exception that ended the task:
  //   Error{kTimeout} when a request waited longer than the deadline. Before it is thrown every
  //   rank is probed; the message names the ranks that did not answer ("rank 2 does not answer") or,
  //   when all did, the rank that was waited for ("rank 2 answers but did not send").
  //   Error{kComm} when the transport lost a peer.
  using Make = std::function<Task(Communicator& world)>;
  using Done = std::function<void(std::exception_ptr)>;
  void Start(Make make, Done done);

  // Start and wait; rethrows. For set-up, checks and tests; not from the communication thread.
  void RunBlocking(Make make);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

 private:
  struct Active;
  struct Command {
    Make make;
    Done done;
  };
  void Run(Setup setup);
  bool Advance();
  std::string DescribeSilence(const PendingRequests& pending);

  std::chrono::milliseconds deadline_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> probe_;  // a split of world_ for liveness probes
  int rank_ = 0;
  int size_ = 1;

  std::mutex mutex_;  // guards commands_, stop_, started_, setup_error_
  std::condition_variable wake_;
  std::deque<Command> commands_;
  bool stop_ = false;
  bool started_ = false;
  std::exception_ptr setup_error_;

  std::list<std::unique_ptr<Active>> active_;
  std::thread thread_;
};

}  // namespace sparfuse
