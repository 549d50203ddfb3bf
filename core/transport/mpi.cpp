// Implements a communicator over Open MPI.
#include "core/transport/mpi.hpp"

#include <mpi.h>
#include <sched.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

// Throws MPI's error. MPI's communicators return errors instead of aborting.
[[noreturn]] void ThrowMpi(int code, const std::string& call) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  SPARFUSE_THROW(kComm, call, ": ", std::string(text.data(), static_cast<std::size_t>(length)));
}

void CheckMpi(int code, const char* call) {
  if (code != MPI_SUCCESS) ThrowMpi(code, call);
}

// Doorbells in memory that the ranks of a host share. MPI cannot block on several requests together
// with a deadline and a caller's wake-up, and polling in a loop takes time from the computation: a
// sender rings instead.
//
// Ringing suffices only if a rung rank completes a message in one test. That requires that all
// ranks are on one host, and that the receiver copies large messages from the sender's memory.
// Otherwise `complete()` is false, and the messages in transit must be polled.
class MpiDoorbells {
 public:
  // Collective over `world`; MPI is initialised.
  explicit MpiDoorbells(MPI_Comm world);

  bool complete() const { return complete_; }
  // Returns null if there is none.
  Doorbell* of(int world_rank) const {
    return bells_.empty() ? nullptr : bells_[static_cast<std::size_t>(world_rank)];
  }
  void Ring(int world_rank) {
    if (complete_) bells_[static_cast<std::size_t>(world_rank)]->Ring();
  }

 private:
  std::vector<Doorbell*> bells_;  // by world rank
  bool complete_ = false;
};

struct alignas(64) Place {
  Doorbell bell;
  pid_t process = 0;
  pid_t* probe = nullptr;  // in the memory of `process`
};

// Returns whether this process may copy from another one's memory, as the transport then does.
bool CanRead(const Place& other) {
  pid_t read = 0;
  const iovec to{&read, sizeof(read)};
  const iovec from{other.probe, sizeof(read)};
  return process_vm_readv(other.process, &to, 1, &from, 1, 0) == sizeof(read) &&
         read == other.process;
}

MpiDoorbells::MpiDoorbells(MPI_Comm world) {
  int rank = 0;
  int size = 0;
  CheckMpi(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(world, &size), "MPI_Comm_size");
  MPI_Comm host = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
           "MPI_Comm_split_type");
  int on_host = 0;
  CheckMpi(MPI_Comm_size(host, &on_host), "MPI_Comm_size");
  if (on_host != size) return;
  Place* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;  // lives as long as the process
  CheckMpi(MPI_Win_allocate_shared(sizeof(Place), 1, MPI_INFO_NULL, host, static_cast<void*>(&own),
                                   &window),
           "MPI_Win_allocate_shared");
  new (own) Place;
  own->process = getpid();
  own->probe = &own->process;
  CheckMpi(MPI_Barrier(host), "MPI_Barrier");
  std::vector<Place*> places(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    MPI_Aint bytes = 0;
    int unit = 0;
    CheckMpi(MPI_Win_shared_query(window, r, &bytes, &unit,
                                  static_cast<void*>(&places[static_cast<std::size_t>(r)])),
             "MPI_Win_shared_query");
  }
  int readable = CanRead(*places[static_cast<std::size_t>((rank + 1) % size)]) ? 1 : 0;
  CheckMpi(MPI_Allreduce(MPI_IN_PLACE, &readable, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  complete_ = readable == 1;
  for (Place* place : places) bells_.push_back(&place->bell);
}

// Tags from here on are above the callers' tags.
constexpr int kSplitTag = 1 << 15;
constexpr std::size_t kMaxMessageBytes = std::numeric_limits<int>::max();

std::atomic<bool> finalize_on_close{false};

// The state shared by the communicators of this process.
struct Session {
  bool initialized_here = false;
  std::int64_t last_completion = MonotonicNanoseconds();
  std::optional<MpiDoorbells> bells;
  int native = 0;  // all-reduces in progress, which ring no bell
  Doorbell own;    // for Wake; the shared bell is used if there is one
  Doorbell* bell = &own;

  void Idle(std::chrono::nanoseconds limit) {
    const std::int64_t now = MonotonicNanoseconds();
    if (bells->complete() && native == 0) return bell->Wait(now + limit.count());
    const std::int64_t sleep = PollingSleepNanoseconds(now - last_completion);
    if (sleep == 0) {
      sched_yield();
      return;
    }
    bell->Wait(now + std::min<std::int64_t>(sleep, limit.count()));
  }
};

enum class Kind : std::uint8_t { kSend, kReceive, kAllReduce };

class MpiRequest final : public Request {
 public:
  // `traffic` may be null: not counted.
  MpiRequest(Session& session, Kind kind, int peer, std::size_t capacity, Traffic* traffic)
      : session_(session), kind_(kind), peer_(peer), bytes_(capacity), traffic_(traffic) {}
  // Cancels receives. MPI cannot withdraw sends and all-reduces: they are abandoned.
  ~MpiRequest() override {
    int finalized = 0;
    if (handle == MPI_REQUEST_NULL || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized) return;
    if (kind_ == Kind::kAllReduce) return;  // must not be freed while active
    if (kind_ == Kind::kReceive && MPI_Cancel(&handle) == MPI_SUCCESS) {
      int complete = 0;
      if (MPI_Test(&handle, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS || complete) return;
    }
    MPI_Request_free(&handle);
  }

  bool Test() override {
    if (complete_) return true;
    int complete = 0;
    MPI_Status status;
    const int code = MPI_Test(&handle, &complete, &status);
    if (code != MPI_SUCCESS) {
      handle = MPI_REQUEST_NULL;  // a failed operation is over
      ThrowMpi(code, Describe());
    }
    if (!complete) return false;
    if (kind_ == Kind::kReceive) {
      int received = 0;
      CheckMpi(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
      bytes_ = static_cast<std::size_t>(received);
      if (traffic_ != nullptr) {
        ++traffic_->messages_received;
        traffic_->bytes_received += bytes_;
      }
    }
    complete_ = true;
    session_.last_completion = MonotonicNanoseconds();
    if (kind_ == Kind::kReceive) session_.bells->Ring(peer_);  // its send may be complete now
    if (kind_ == Kind::kAllReduce) --session_.native;
    return true;
  }
  std::size_t bytes() const noexcept override { return bytes_; }
  int peer() const noexcept override { return peer_; }

  std::string Describe() const {
    const std::string bytes = std::to_string(bytes_) + " bytes";
    switch (kind_) {
      case Kind::kSend:
        return "MPI_Isend of " + bytes + " to rank " + std::to_string(peer_);
      case Kind::kReceive:
        return "MPI_Irecv of at most " + bytes + " from rank " + std::to_string(peer_);
      case Kind::kAllReduce:
        return "MPI_Iallreduce of " + bytes;
    }
    return "";
  }
  void CheckStarted(int code) {
    if (code == MPI_SUCCESS) return;
    handle = MPI_REQUEST_NULL;
    ThrowMpi(code, Describe());
  }

  MPI_Request handle = MPI_REQUEST_NULL;

 private:
  Session& session_;
  Kind kind_;
  int peer_;  // in the world
  std::size_t bytes_;
  Traffic* traffic_;
  bool complete_ = false;
};

void CheckBytes(std::size_t bytes, const char* what) {
  if (bytes > kMaxMessageBytes) {
    SPARFUSE_THROW(kUnsupported, "mpi: ", what, " of ", bytes, " bytes: expected at most ",
                   kMaxMessageBytes, "; send smaller units");
  }
}

class MpiCommunicator final : public GroupCommunicator {
 public:
  MpiCommunicator(std::shared_ptr<Session> session, MPI_Comm handle, std::vector<int> members,
                  int rank, Topology topology, bool is_world)
      : GroupCommunicator(std::move(members), rank, topology),
        session_(std::move(session)),
        handle_(handle),
        is_world_(is_world) {
    CheckMpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  // Does not free handles: MPI_Comm_free is collective, and ranks may destroy theirs in different
  // orders or, after an error, not at all. Handles are few, and live as long as the process.
  ~MpiCommunicator() override {
    if (is_world_ && session_->initialized_here && finalize_on_close.load()) MPI_Finalize();
  }

  std::string_view backend() const noexcept override { return "mpi"; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override {
    CheckAddress(destination, size(), tag);
    CheckBytes(data.size(), "message");
    CountSent(destination, data.size());
    return StartSend(destination, tag, data);
  }
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override {
    CheckAddress(source, size(), tag);
    return StartReceive(source, tag, buffer, &TrafficWith(source));
  }

  std::unique_ptr<Request> NativeAllReduceSum(std::span<float> buffer) override {
    CheckBytes(buffer.size(), "all-reduce");  // counted in elements
    auto request =
        std::make_unique<MpiRequest>(*session_, Kind::kAllReduce, -1, buffer.size_bytes(), nullptr);
    request->CheckStarted(MPI_Iallreduce(MPI_IN_PLACE, buffer.data(),
                                         static_cast<int>(buffer.size()), MPI_FLOAT, MPI_SUM,
                                         handle_, &request->handle));
    ++session_->native;
    return request;
  }
  bool has_native_all_reduce() const noexcept override { return true; }

  void Idle(std::chrono::nanoseconds limit) override { session_->Idle(limit); }
  void Wake() noexcept override { session_->bell->Ring(); }

  // Exchanges the choices itself, because MPI_Comm_split has no deadline. Once all ranks have
  // arrived, it takes no longer than its messages.
  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    const auto choices = GatherFromPeers(
        *this, SplitChoice{color, key}, deadline, "split",
        [this](int peer, auto bytes) { return StartSend(peer, kSplitTag, bytes); },
        [this](int peer, auto bytes) { return StartReceive(peer, kSplitTag, bytes, nullptr); });
    const SplitGroup group = ComputeSplit(topology(), rank(), choices);
    MPI_Comm handle = MPI_COMM_NULL;
    CheckMpi(MPI_Comm_split(handle_, color, group.rank, &handle), "MPI_Comm_split");
    return std::make_unique<MpiCommunicator>(session_, handle, WorldRanks(group.members),
                                             group.rank, group.topology, false);
  }

 private:
  std::unique_ptr<MpiRequest> StartSend(int destination, int tag, std::span<const std::byte> data) {
    auto request = std::make_unique<MpiRequest>(*session_, Kind::kSend, WorldRank(destination),
                                                data.size(), nullptr);
    request->CheckStarted(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE,
                                    destination, tag, handle_, &request->handle));
    session_->bells->Ring(WorldRank(destination));
    return request;
  }
  std::unique_ptr<MpiRequest> StartReceive(int source, int tag, std::span<std::byte> buffer,
                                           Traffic* traffic) {
    const std::size_t capacity = std::min(buffer.size(), kMaxMessageBytes);  // no rank sends more
    auto request = std::make_unique<MpiRequest>(*session_, Kind::kReceive, WorldRank(source),
                                                capacity, traffic);
    request->CheckStarted(MPI_Irecv(buffer.data(), static_cast<int>(capacity), MPI_BYTE, source,
                                    tag, handle_, &request->handle));
    return request;
  }

  std::shared_ptr<Session> session_;  // shared with the communicators split from this one
  MPI_Comm handle_;
  bool is_world_;
};

}  // namespace

std::unique_ptr<Communicator> MakeMpiWorld(int ranks_per_node) {
  RequireRanksPerNode("mpi", ranks_per_node);
  auto session = std::make_shared<Session>();
  int initialized = 0;
  CheckMpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (!initialized) {
    int provided = MPI_THREAD_SINGLE;
    CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
             "MPI_Init_thread");
    session->initialized_here = true;
    if (provided < MPI_THREAD_SERIALIZED) {
      SPARFUSE_THROW(kUnsupported,
                     "mpi: the library was built without MPI_THREAD_SERIALIZED, which a "
                     "communication thread needs");
    }
  }
  CheckMpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int* tag_limit = nullptr;
  int found = 0;
  CheckMpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&tag_limit), &found),
           "MPI_Comm_get_attr");
  if (!found || *tag_limit < kSplitTag) {
    SPARFUSE_THROW(kUnsupported, "mpi: largest tag is ", found ? *tag_limit : 0,
                   ": expected at least ", kSplitTag);
  }
  MPI_Comm handle = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
  int rank = 0;
  int size = 0;
  CheckMpi(MPI_Comm_rank(handle, &rank), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(handle, &size), "MPI_Comm_size");
  session->bells.emplace(handle);
  if (Doorbell* shared = session->bells->of(rank)) session->bell = shared;
  return std::make_unique<MpiCommunicator>(std::move(session), handle, AllRanks(size), rank,
                                           Topology{size, ranks_per_node}, true);
}

std::string MpiLibraryVersion() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text(version, static_cast<std::size_t>(length));
  return text.substr(0, text.find_first_of(",\n"));
}

void FinalizeMpiOnClose() { finalize_on_close.store(true); }

}  // namespace sparfuse
