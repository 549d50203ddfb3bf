// Runs the communication thread of a rank. The thread advances collectives and answers liveness
// probes. It ends a stalled exchange with an error that names the rank at fault.
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

// Pings all ranks and answers their pings, on a separate communicator that spans the world. An
// answer names the rank that the sender itself waits for, so that a chain of waiting ranks can be
// followed to its end.
class Liveness {
 public:
  // Values for a rank that does not wait for a rank.
  static constexpr int kNothing = -1;
  static constexpr int kNativeCollective = -2;

  explicit Liveness(std::unique_ptr<Communicator> communicator);

  // Answers pings and receives answers; call it often. Never throws: a peer that the transport lost
  // counts as silent.
  void Service(int waiting_for);
  void PingAll(int waiting_for);

  // Names the ranks that hold up a rank which waits for `waiting_for` and sent its pings at
  // `pinged`. These are the ranks that did not answer since ("rank 2 does not answer"). If all
  // answered, it is the last rank of the chain of waiting ranks ("rank 2 answers but did not
  // send").
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

// Splits `from` and sets `into`, which outlives the task. Calls from.Split, which blocks, or
// StartSplit and EndSplit for ranks that share a thread.
Task SplitOff(Communicator& from, int color, int key, std::chrono::milliseconds deadline,
              std::unique_ptr<Communicator>& into);

class ProgressLoop;

// Threads that serve the ranks of a world in this process. Each thread serves several neighbouring
// ranks, because hundreds of communication threads would switch once per message. Probes are
// needless: the rank that each rank waits for is known here.
class SharedProgress {
 public:
  // threads: at most one per rank is started.
  SharedProgress(int ranks, int threads);
  // Precondition: its loops are destroyed.
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  // [ranks] the doorbells for MakeThreadsWorld.
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
  std::vector<std::atomic<int>> waiting_for_;  // [ranks] kNothing, or the awaited rank
};

// Everything that uses Communicators runs on the loop's thread, its own or a shared one: it calls
// factories of tasks, resumes tasks and calls `done` callbacks.
class ProgressLoop {
 public:
  // Builds the communicators on the communication thread (MPI must be used by one thread) and
  // returns the world, which the loop owns and destroys on that thread.
  using Setup = std::function<std::unique_ptr<Communicator>()>;

  // Starts the thread and waits until `setup` has returned. `deadline` bounds every wait of every
  // task. Rethrows the exceptions of `setup`. Afterwards the thread splits a communicator for
  // probes off the world's host(), which needs a loop on every rank. While a loop is missing, tasks
  // do not start; past the deadline they fail with Error{kTimeout} naming its rank.
  ProgressLoop(Setup setup, std::chrono::milliseconds deadline);
  // Makes a loop that a thread of `shared` serves. `shared` outlives the loop. `world` was made
  // with the bells of `shared`, which also serves the other ranks' loops.
  ProgressLoop(std::unique_ptr<Communicator> world, std::chrono::milliseconds deadline,
               SharedProgress& shared);
  // Stops the thread. Unfinished tasks are dropped without a call of `done`.
  ~ProgressLoop();
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  // Starts make(world) on the communication thread as soon as possible. `make` lives as long as the
  // task, so `make` may be a coroutine lambda with captures. The thread calls `done(error)` after
  // it has destroyed the task and its buffers. `error` is null or the exception that ended the task
  // or `make`:
  //   Error{kTimeout} if a request waited longer than the deadline. In the last part of the
  //   deadline, the loop probes every rank. The message names the ranks that did not answer ("rank
  //   2 does not answer") or, if all did, the rank at the end of the chain of waiting ranks ("rank
  //   2 answers but did not send").
  //   Error{kComm} if the transport lost a peer.
  // After an error the loop continues to answer probes until it is destroyed, so that other ranks
  // do not blame this one. Keep the loop for a deadline, or end the process group.
  using Make = std::function<Task(Communicator& world)>;
  using Done = std::function<void(std::exception_ptr)>;
  void Start(Make make, Done done);

  // Ends every task that was started so far with Error{kComm}: after an error on this rank, no task
  // waits for messages that other ranks will not send.
  void Cancel();

  // From now on a wait may exceed the deadline by `lateness`: if ranks meet seldom, one may be
  // late. Any thread may call it.
  void Allow(std::chrono::milliseconds lateness) noexcept { lateness_ms_ = lateness.count(); }

  // Makes the thread test the requests of all tasks at once, even if it sleeps. Call it when a
  // request other than a message is complete.
  void Wake() noexcept { world_->Wake(); }

  // Starts a task, waits for its end and rethrows its error. For set-up, checks and tests; not for
  // the communication thread.
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
    Clock::time_point pinged{};  // belongs to this wait if later than pending.since
  };
  struct Command {
    Make make;
    Done done;
  };
  friend class SharedProgress;
  void Run(Setup setup);
  void Serve();
  // On a shared thread: advances all tasks that can. Returns whether there was something to do.
  bool Turn();
  bool waits() const { return !active_.empty(); }
  // Moves new commands to `active_`. Returns true if the loop was stopped. Waits for a while if no
  // task is active.
  bool TakeCommands();
  void MakeActive();
  void CancelActive();
  bool Advance();
  bool AdvanceOne(Active& active);
  void CheckDeadline(Active& active);
  int WaitingFor() const { return active_.empty() ? gave_up_on_ : active_.front().waiting_for; }

  std::chrono::milliseconds deadline_;
  SharedProgress* const shared_ = nullptr;
  std::atomic<std::int64_t> lateness_ms_ = 0;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Liveness> liveness_;  // null on a shared thread
  std::exception_ptr broken_;           // why set-up of liveness_ failed: the error of every task
  int rank_ = 0;
  int size_ = 1;

  std::mutex mutex_;                 // guards commands_, stop_, cancel_, started_, setup_error_
  std::atomic<bool> asked_ = false;  // there are commands, or Cancel was called
  std::condition_variable wake_;
  std::deque<Command> commands_;
  bool stop_ = false;
  bool cancel_ = false;
  bool started_ = false;
  std::exception_ptr setup_error_;

  std::list<Active> active_;  // in the order of Start
  // The rank that the last task waited for if it gave up. Ranks that wait for this one look there
  // for who holds them up.
  int gave_up_on_ = Liveness::kNothing;
  std::thread thread_;
};

}  // namespace sparfuse
