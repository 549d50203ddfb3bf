// Runs the communication thread of a rank, which advances collectives, answers liveness probes, and
// turns a silent peer into an error that names it: the rank that a stalled exchange really waits
// for.
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

#include "core/transport/communicator.hpp"
#include "core/transport/sleep.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// Pings all ranks and answers their pings, on a communicator of its own that spans the world. An
// answer tells which rank the answering one waits for itself, so that a chain of waiting ranks can
// be followed to its end.
class Liveness {
 public:
  // What a rank may wait for instead of a rank.
  static constexpr int kNothing = -1;
  static constexpr int kNativeCollective = -2;

  explicit Liveness(std::unique_ptr<Communicator> communicator);

  // Answers pings and takes in answers; to be called often. Never throws: a peer that the transport
  // lost counts as silent.
  void Service(int waiting_for);
  void PingAll(int waiting_for);

  // Says who holds up a rank that waits for `waiting_for` and sent its pings at `pinged`: the ranks
  // not heard of since ("rank 2 does not answer"), or else the last one of the chain of waiting
  // ranks ("rank 2 answers but did not send").
  std::string Describe(int waiting_for, std::chrono::steady_clock::time_point pinged) const;

 private:
  struct Message {
    std::int32_t wants_answer = 0;
    std::int32_t waiting_for = kNothing;
  };
  struct Peer {
    Message inbox;
    std::unique_ptr<Request> receive;  // null for this rank, and once the peer is lost
    std::chrono::steady_clock::time_point last_heard;
    int waiting_for = kNothing;
  };
  struct Outgoing {
    Message message;
    std::unique_ptr<Request> send;
  };
  void Send(int peer, Message message);

  std::unique_ptr<Communicator> communicator_;
  std::vector<Peer> peers_;
  std::list<Outgoing> outgoing_;
};

// Task: from.Split, which blocks, or on ranks that one thread serves its two parts. Sets `into`,
// which outlives the task.
Task SplitOff(Communicator& from, int color, int key, std::chrono::milliseconds deadline,
              std::unique_ptr<Communicator>& into);

class ProgressLoop;

// Threads that serve the ranks of a world of this process, each as many neighbours: hundreds of
// communication threads would switch once for each message. They make probes needless: what each
// rank waits for is known here.
class SharedProgress {
 public:
  // threads: at most one a rank is started.
  SharedProgress(int ranks, int threads);
  // Its loops are gone.
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  // [ranks] for MakeThreadsWorld.
  std::vector<Doorbell*> bells();

 private:
  friend class ProgressLoop;
  struct Server {
    Doorbell bell;
    std::mutex mutex;  // guards loops, stop; held while loops are served
    std::vector<ProgressLoop*> loops;
    bool stop = false;
    std::thread thread;
  };
  static void Serve(Server& server);
  Server& ServerOf(int rank);
  void Add(ProgressLoop& loop, int rank);
  // Returns when no thread uses the loop.
  void Remove(ProgressLoop& loop, int rank);

  const int ranks_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::atomic<int>> waiting_for_;  // [ranks] Liveness::kNothing, or what a rank awaits
};

// Everything that touches Communicators runs on this thread, its own or one that serves others,
// too: factories of tasks are called here, tasks are resumed here, and `done` callbacks are called
// here.
class ProgressLoop {
 public:
  // Builds the communicators on the communication thread (MPI must be used by one thread) and
  // returns the world, which the loop owns and destroys on that thread.
  using Setup = std::function<std::unique_ptr<Communicator>()>;

  // Starts the thread and waits until `setup` has returned. `deadline` bounds every wait of every
  // task. Throws what setup throws. Afterwards the thread splits a communicator for probes off the
  // world's host(), which takes a loop on every rank: while one is missing, tasks do not start, and
  // they fail with Error{kTimeout} naming it when the deadline passes.
  ProgressLoop(Setup setup, std::chrono::milliseconds deadline);
  // Served by a thread of `shared`, which outlives it: `world` was made with its bells, and the
  // other ranks' loops are of it, too.
  ProgressLoop(std::unique_ptr<Communicator> world, std::chrono::milliseconds deadline,
               SharedProgress& shared);
  // Stops the thread. Unfinished tasks are dropped without a call of `done`.
  ~ProgressLoop();
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  // Starts make(world) as soon as the thread gets to it. `make` lives as long as the task, so it
  // may be a coroutine lambda with captures. `done(error)` is called on the communication thread,
  // after the task and its buffers are gone, with null or the exception that ended the task or
  // `make`:
  //   Error{kTimeout} when a request waited longer than the deadline. Before it is thrown every
  //   rank is probed, for the last part of the deadline; the message names the ranks that did not
  //   answer ("rank 2 does not answer") or, when all did, the rank at the end of the chain of
  //   waiting ranks ("rank 2 answers but did not send").
  //   Error{kComm} when the transport lost a peer.
  // After an error the loop goes on answering probes until it is destroyed, so that other ranks do
  // not blame this one; keep it for a deadline, or end the process group.
  using Make = std::function<Task(Communicator& world)>;
  using Done = std::function<void(std::exception_ptr)>;
  void Start(Make make, Done done);

  // Ends every task that was started so far with Error{kComm}: after an error on this rank nobody
  // waits for what other ranks will not send.
  void Cancel();

  // From now on a wait may take that much longer than the deadline: where ranks meet seldom, one
  // may be late. Any thread.
  void Allow(std::chrono::milliseconds lateness) noexcept { lateness_ms_ = lateness.count(); }

  // Looks at what tasks wait for at once, where the thread may be asleep: something that is no
  // message is complete.
  void Wake() noexcept { world_->Wake(); }

  // Start and wait; rethrows. For set-up, checks and tests; not from the communication thread.
  void RunBlocking(Make make);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Active {
    Make make;  // destroyed after the task
    Task task;
    PendingRequests pending;  // destroyed before the task
    Done done;
    int waiting_for = Liveness::kNothing;
    Clock::time_point pinged{};  // in this wait, when later than pending.since
  };
  struct Command {
    Make make;
    Done done;
  };
  friend class SharedProgress;
  void Run(Setup setup);
  void Serve();
  // On a shared thread: goes on where it can, and says whether that was anywhere.
  bool Turn();
  bool waits() const { return !active_.empty(); }
  // True when stopped; moves new commands to `active_`. Waits for some while nothing is active.
  bool TakeCommands();
  void MakeActive();
  void CancelActive();
  bool Advance();
  bool AdvanceOne(Active& active);
  void CheckDeadline(Active& active);
  int WaitingFor() const;

  std::chrono::milliseconds deadline_;
  SharedProgress* const shared_ = nullptr;
  std::atomic<std::int64_t> lateness_ms_ = 0;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Liveness> liveness_;  // null on a shared thread
  std::exception_ptr broken_;  // why liveness_ could not be set up: the error of every task
  int rank_ = 0;
  int size_ = 1;

  std::mutex mutex_;                 // guards commands_, stop_, cancel_, started_, setup_error_
  std::atomic<bool> asked_ = false;  // there are commands, or it is to cancel
  std::condition_variable wake_;
  std::deque<Command> commands_;
  bool stop_ = false;
  bool cancel_ = false;
  bool started_ = false;
  std::exception_ptr setup_error_;

  std::list<Active> active_;  // in the order of Start
  std::thread thread_;
};

}  // namespace sparfuse
