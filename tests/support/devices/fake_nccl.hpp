// Plays NCCL in tests: ranks are threads of this process, devices are emulated, data is really
// moved.
//
// It keeps NCCL's rules and records who breaks them (violations()). A stream runs its work in
// order, and an operation ends when all of its ranks have reached it. The messages between two
// ranks match in order and must have equal bytes. No call is allowed on a communicator that is busy
// or was aborted. A launch reaches the stream only some polls later, as when NCCL issues in the
// background.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/nccl/api.hpp"
#include "core/transport/nccl/nccl.hpp"

namespace sparfuse::testing {

// A process holds at most one. It is made before the communicators and destroyed after them.
class FakeNccl {
 public:
  FakeNccl() { current_ = this; }
  ~FakeNccl() { current_ = nullptr; }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  static const NcclApi& Api();

  static inline thread_local int version = 22809;  // of the calling rank

  // --- faults, which are set before the ranks start ---
  int busy_polls = 2;     // polls for which a call stays in progress
  int missing_rank = -1;  // never gets through the initialisation, so no other rank does either
  // The result and error text of the initialisation on a rank.
  std::map<int, std::pair<int, std::string>> init_errors;

  // From now on NCCL on `rank` reports an error of the running operations.
  void BreakAsync(int rank, int result, const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (const auto& comm : comms_) {
      if (comm->rank == rank) comm->error = result;
    }
    last_error_ = text;
  }

  // --- records of what happened ---
  int Aborts(int rank) const {
    return Count(rank, [](const Comm& c) { return c.aborts; });
  }
  int Destroys(int rank) const {
    return Count(rank, [](const Comm& c) { return c.destroys; });
  }
  int Made(int rank) const {
    return Count(rank, [](const Comm&) { return 1; });
  }
  // The number of calls of all ranks, by name.
  std::map<std::string, int> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<std::string> violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }

 private:
  struct World;
  struct Part {  // one rank's part of an operation
    enum class Kind { kSend, kReceive, kAllReduce, kAllGather };
    Kind kind;
    int peer = -1;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t size = 0;  // bytes, or floats to sum
    bool done = false;
  };
  struct Comm {
    World* world = nullptr;
    int rank = 0;
    int aborts = 0;
    int destroys = 0;
    bool finalized = false;
    int error = kNcclSuccess;
    int busy = 0;
    int running = 0;  // groups on the stream, or on their way to it
    void* stream = nullptr;
    std::vector<Part> group;
    std::uint64_t collectives = 0;
    bool gone() const { return aborts + destroys > 0; }
  };
  struct World {
    std::size_t ranks = 0;
    std::size_t arrived = 0;
    std::map<std::pair<int, int>, std::deque<Part*>> sends;  // by source and destination
    std::map<std::pair<int, int>, std::deque<Part*>> receives;
    std::map<std::uint64_t, std::map<int, Part*>> collectives;
  };

  int Count(int rank, const std::function<int(const Comm&)>& of) const {
    const std::lock_guard lock(mutex_);
    int sum = 0;
    for (const auto& comm : comms_) sum += comm->rank == rank ? of(*comm) : 0;
    return sum;
  }
  void Violation(std::string what) { violations_.push_back(std::move(what)); }
  // Checks that comm may be called now.
  Comm& Use(void* handle, const char* call) {
    Comm& comm = *static_cast<Comm*>(handle);
    ++calls_[call];
    const std::string who = std::string(call) + " on rank " + std::to_string(comm.rank);
    if (comm.gone()) Violation(who + " after the communicator's end");
    if (comm.busy > 0) Violation(who + " while it is busy");
    return comm;
  }

  int Init(void** handle, int ranks, const NcclUniqueId& id, int rank) {
    const std::lock_guard lock(mutex_);
    ++calls_["init"];
    if (const auto error = init_errors.find(rank); error != init_errors.end()) {
      last_error_ = error->second.second;
      return error->second.first;
    }
    std::size_t number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    World& world = *worlds_.at(number);
    world.ranks = static_cast<std::size_t>(ranks);
    Comm& comm = *comms_.emplace_back(std::make_unique<Comm>());
    comm.world = &world;
    comm.rank = rank;
    comm.busy = busy_polls;
    if (rank != missing_rank) ++world.arrived;
    *handle = &comm;
    return kNcclInProgress;
  }

  int Poll(void* handle, int* state) {
    std::unique_lock lock(mutex_);
    Comm& comm = *static_cast<Comm*>(handle);
    if (comm.gone()) Violation("poll of rank " + std::to_string(comm.rank) + " after the end");
    *state = comm.error;
    if (comm.error != kNcclSuccess) return kNcclSuccess;
    if (comm.world->arrived < comm.world->ranks || (comm.finalized && comm.running > 0)) {
      *state = kNcclInProgress;
    } else if (comm.busy > 0 && --comm.busy > 0) {
      *state = kNcclInProgress;
    } else if (!comm.group.empty()) {
      Issue(comm, lock);
    }
    return kNcclSuccess;
  }

  static bool IsMessage(const Part& part) {
    return part.kind == Part::Kind::kSend || part.kind == Part::Kind::kReceive;
  }
  // Hands the group to the stream.
  void Issue(Comm& comm, std::unique_lock<std::mutex>& lock) {
    auto parts = std::make_shared<std::vector<Part>>(std::exchange(comm.group, {}));
    const Stream stream{{DeviceKind::kEmulated, 0}, comm.stream};
    lock.unlock();
    gpu::emulated::Enqueue(stream, [this, &comm, parts] { Run(comm, *parts); });
    lock.lock();
  }

  // Runs on the stream's thread until all parts are done or the communicator is aborted.
  void Run(Comm& comm, std::vector<Part>& parts) {
    std::unique_lock lock(mutex_);
    if (comm.aborts == 0) {
      for (Part& part : parts) Arrive(comm, part);
      changed_.notify_all();
      changed_.wait(lock, [&] {
        return comm.aborts > 0 ||
               std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.done; });
      });
      Withdraw(comm);
    }
    --comm.running;
    changed_.notify_all();
  }

  // Removes the rank's parts from the world: at most one group, since a stream keeps its order.
  void Withdraw(const Comm& comm) {
    for (auto& [ends, queue] : comm.world->sends) {
      if (ends.first == comm.rank) queue.clear();
    }
    for (auto& [ends, queue] : comm.world->receives) {
      if (ends.second == comm.rank) queue.clear();
    }
    for (auto& [number, arrived] : comm.world->collectives) arrived.erase(comm.rank);
  }

  void Arrive(Comm& comm, Part& part) {
    World& world = *comm.world;
    if (IsMessage(part)) {
      const bool sends = part.kind == Part::Kind::kSend;
      const std::pair key =
          sends ? std::pair(comm.rank, part.peer) : std::pair(part.peer, comm.rank);
      (sends ? world.sends : world.receives)[key].push_back(&part);
      auto& from = world.sends[key];
      auto& to = world.receives[key];
      while (!from.empty() && !to.empty()) {
        if (from.front()->size != to.front()->size) {
          Violation("message of " + std::to_string(from.front()->size) +
                    " bytes meets a receive of " + std::to_string(to.front()->size));
        }
        std::memcpy(to.front()->to, from.front()->from,
                    std::min(from.front()->size, to.front()->size));
        from.front()->done = to.front()->done = true;
        from.pop_front();
        to.pop_front();
      }
      return;
    }
    auto& arrived = world.collectives[comm.collectives++];
    arrived[comm.rank] = &part;
    if (arrived.size() < world.ranks) return;
    for (const auto& [rank, other] : arrived) {
      if (other->kind != part.kind || other->size != part.size) Violation("collectives differ");
    }
    if (part.kind == Part::Kind::kAllReduce) {
      std::vector<float> sum(part.size);
      for (const auto& [rank, other] : arrived) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float*>(other->to)[i];
      }
      for (const auto& [rank, other] : arrived) {
        std::copy(sum.begin(), sum.end(), static_cast<float*>(other->to));
      }
    } else {
      for (const auto& [rank, other] : arrived) {
        for (const auto& [to_rank, to] : arrived) {
          std::byte* const place =
              static_cast<std::byte*>(to->to) + static_cast<std::size_t>(rank) * part.size;
          if (place != other->from) std::memcpy(place, other->from, part.size);
        }
      }
    }
    for (const auto& [rank, other] : arrived) other->done = true;
  }

  int Call(void* handle, void* stream, const char* name, Part part) {
    std::unique_lock lock(mutex_);
    Comm& comm = Use(handle, name);
    comm.stream = stream;
    comm.group.push_back(part);
    in_group_.insert(&comm);
    if (depth_ > 0) return kNcclSuccess;
    lock.unlock();
    return EndGroup();
  }
  int EndGroup() {
    std::unique_lock lock(mutex_);
    int result = kNcclSuccess;
    for (Comm* comm : std::exchange(in_group_, {})) {
      comm->busy = busy_polls;
      ++comm->running;
      if (comm->busy > 0) {
        result = kNcclInProgress;
      } else {
        Issue(*comm, lock);
      }
    }
    return result;
  }

  int Abort(void* handle) {
    {
      const std::lock_guard lock(mutex_);
      Comm& comm = *static_cast<Comm*>(handle);
      if (comm.gone()) Violation("abort of rank " + std::to_string(comm.rank) + " after the end");
      ++comm.aborts;
      if (!comm.group.empty()) --comm.running;
      comm.group.clear();
      Withdraw(comm);  // now, so that no later rank finds a partner
    }
    changed_.notify_all();
    return kNcclSuccess;
  }

  static inline FakeNccl* current_ = nullptr;
  static inline thread_local int depth_ = 0;
  static inline thread_local std::set<Comm*> in_group_;

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::map<std::string, int> calls_;
  std::vector<std::string> violations_;
  std::string last_error_;
};

inline const NcclApi& FakeNccl::Api() {
  static const NcclApi kApi{
      .get_version = [](int* version) -> int {
        *version = FakeNccl::version;
        return kNcclSuccess;
      },
      .get_unique_id = [](NcclUniqueId* id) -> int {
        const std::lock_guard lock(current_->mutex_);
        const std::size_t number = current_->worlds_.size();
        current_->worlds_.push_back(std::make_unique<World>());
        std::memcpy(id->data(), &number, sizeof number);
        return kNcclSuccess;
      },
      .comm_init = [](void** comm, int ranks, const NcclUniqueId* id, int rank, int) -> int {
        return current_->Init(comm, ranks, *id, rank);
      },
      .comm_async_error = [](void* comm, int* state) -> int { return current_->Poll(comm, state); },
      .comm_finalize = [](void* comm) -> int {
        const std::lock_guard lock(current_->mutex_);
        current_->Use(comm, "finalize").finalized = true;
        return kNcclInProgress;
      },
      .comm_destroy = [](void* comm) -> int {
        const std::lock_guard lock(current_->mutex_);
        ++current_->Use(comm, "destroy").destroys;
        return kNcclSuccess;
      },
      .comm_abort = [](void* comm) -> int { return current_->Abort(comm); },
      .error_string =
          [](int result) {
            return result == kNcclRemoteError ? "remote process exited or there was a network error"
                   : result == kNcclInvalidUsage ? "invalid usage"
                                                 : "some error";
          },
      .last_error = [](void*) { return current_->last_error_.c_str(); },
      .group_start = []() -> int {
        ++depth_;
        return kNcclSuccess;
      },
      .group_end = []() -> int { return --depth_ > 0 ? kNcclSuccess : current_->EndGroup(); },
      .send = [](const void* data, std::size_t bytes, int peer, void* comm, void* stream) -> int {
        return current_->Call(comm, stream, "send",
                              {Part::Kind::kSend, peer, data, nullptr, bytes});
      },
      .receive = [](void* data, std::size_t bytes, int peer, void* comm, void* stream) -> int {
        return current_->Call(comm, stream, "receive",
                              {Part::Kind::kReceive, peer, nullptr, data, bytes});
      },
      .all_reduce_sum = [](float* data, std::size_t count, void* comm, void* stream) -> int {
        return current_->Call(comm, stream, "all-reduce",
                              {Part::Kind::kAllReduce, -1, data, data, count});
      },
      .all_gather = [](const void* own, void* all, std::size_t bytes, void* comm,
                       void* stream) -> int {
        return current_->Call(comm, stream, "all-gather",
                              {Part::Kind::kAllGather, -1, own, all, bytes});
      },
  };
  return kApi;
}

// Of a rank whose card is emulated and named by the rank.
inline NcclSetup EmulatedSetup(std::unique_ptr<Communicator> host,
                               std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  NcclSetup setup;
  setup.card = "GPU-" + std::to_string(host->rank());
  setup.host = std::move(host);
  setup.device = {DeviceKind::kEmulated, 0};
  setup.deadline = deadline;
  return setup;
}

}  // namespace sparfuse::testing
