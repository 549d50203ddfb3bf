#include "core/transport/threads.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

// Messages with equal keys match in the order in which they were posted.
struct Key {
  std::uint64_t communicator = 0;
  int source = 0;  // world ranks
  int destination = 0;
  int tag = 0;
  bool operator==(const Key&) const = default;
};

enum class Progress : std::uint8_t { kPosted, kCopying, kDone, kTooLarge, kPeerLost };

// A posted send or receive. `progress` changes under the mutex of the destination's mailbox; its
// final values are also read without it.
struct Operation {
  Key key;
  bool is_send = false;
  std::byte* data = nullptr;  // read only when is_send
  std::size_t size = 0;       // of the message, or room for it
  std::size_t moved = 0;      // bytes of the message, once matched
  SharedBytes sent;           // data that is shared instead of copied
  SharedBytes* into = nullptr;
  std::atomic<Progress> progress{Progress::kPosted};

  int owner() const { return is_send ? key.source : key.destination; }
  int peer() const { return is_send ? key.destination : key.source; }
};
using OperationPointer = std::shared_ptr<Operation>;  // its request, and a queue or a copying peer

class World {
 public:
  World(int ranks, std::span<Doorbell* const> bells)
      : endpoints_(static_cast<std::size_t>(ranks)), threads_are_shared_(!bells.empty()) {
    for (std::size_t rank = 0; rank < endpoints_.size(); ++rank) {
      Endpoint& endpoint = endpoints_[rank];
      endpoint.from.resize(endpoints_.size());
      endpoint.bell = threads_are_shared_ ? bells[rank] : &endpoint.own_bell;
    }
  }

  bool threads_are_shared() const { return threads_are_shared_; }

  void Post(const OperationPointer& operation) {
    Endpoint& endpoint = EndpointOf(operation->key.destination);
    OperationPointer partner;
    {
      std::unique_lock lock(endpoint.mailbox_mutex);
      if (EndpointOf(operation->peer()).lost.load()) {
        operation->progress.store(Progress::kPeerLost);
        return;
      }
      Posted& posted = PostedOf(endpoint, *operation);
      const auto waiting = std::ranges::find_if(posted, [&](const OperationPointer& other) {
        return other->is_send != operation->is_send && other->key == operation->key;
      });
      if (waiting == posted.end()) {
        posted.push_back(operation);
        return;
      }
      partner = std::move(*waiting);
      posted.erase(waiting);
      // Neither request can be destroyed during the copy.
      operation->progress.store(Progress::kCopying);
      partner->progress.store(Progress::kCopying);
    }
    Operation& send = operation->is_send ? *operation : *partner;
    Operation& receive = operation->is_send ? *partner : *operation;
    const bool fits = send.size <= receive.size;
    if (receive.into != nullptr && send.sent.owner != nullptr) {
      *receive.into = std::move(send.sent);
    } else if (receive.into != nullptr) {  // from a sender that does not share its data
      const auto copy = std::make_shared<std::vector<std::byte>>(send.data, send.data + send.size);
      *receive.into = {copy, *copy};
    } else if (fits && send.size > 0) {
      std::memcpy(receive.data, send.data, send.size);
    }
    {
      std::lock_guard lock(endpoint.mailbox_mutex);
      send.moved = send.size;
      receive.moved = send.size;
      send.progress.store(Progress::kDone);
      receive.progress.store(fits ? Progress::kDone : Progress::kTooLarge);
    }
    endpoint.copied.notify_all();
    BellOf(send.key.source).Ring();
    BellOf(send.key.destination).Ring();
  }

  // Withdraws an operation that is about to lose its buffer.
  void Withdraw(const OperationPointer& operation) {
    Endpoint& endpoint = EndpointOf(operation->key.destination);
    std::unique_lock lock(endpoint.mailbox_mutex);
    endpoint.copied.wait(lock, [&] { return operation->progress.load() != Progress::kCopying; });
    if (operation->progress.load() != Progress::kPosted) return;
    std::erase(PostedOf(endpoint, *operation), operation);
  }

  void MarkLost(int rank) {
    EndpointOf(rank).lost.store(true);
    for (std::size_t r = 0; r < endpoints_.size(); ++r) {
      Endpoint& endpoint = endpoints_[r];
      {
        std::lock_guard lock(endpoint.mailbox_mutex);
        const auto fail = [rank](Posted& posted) {
          std::erase_if(posted, [&](const OperationPointer& operation) {
            if (operation->peer() != rank) return false;
            operation->progress.store(Progress::kPeerLost);
            return true;
          });
        };
        if (r == static_cast<std::size_t>(rank)) {
          std::ranges::for_each(endpoint.from, fail);  // messages that others send it
        } else {
          fail(endpoint.from[static_cast<std::size_t>(rank)]);
        }
      }
      endpoint.bell->Ring();
    }
    { std::lock_guard lock(split_mutex_); }
    split_changed_.notify_all();
  }

  // Rings when an operation of `rank` ends.
  Doorbell& BellOf(int rank) { return *EndpointOf(rank).bell; }

  // Identifies a split: every member arrives with equal numbers. It leaves with the members'
  // choices and a number for each color's new communicator.
  struct SplitKey {
    std::uint64_t communicator = 0;
    std::uint64_t sequence = 0;
    auto operator<=>(const SplitKey&) const = default;
  };
  struct SplitResult {
    std::vector<SplitChoice> choices;
    std::map<int, std::uint64_t> communicator_of_color;
  };

  void ArriveAtSplit(SplitKey key, std::span<const int> members, int rank, SplitChoice choice) {
    {
      const std::lock_guard lock(split_mutex_);
      Split& split = splits_[key];
      if (split.choices.empty()) split.choices.resize(members.size());
      split.choices[static_cast<std::size_t>(rank)] = choice;
      if (++split.arrived < members.size()) return;
      for (const auto& c : split.choices) {
        if (split.result.communicator_of_color.emplace(c->color, next_communicator_).second) {
          ++next_communicator_;
        }
        split.result.choices.push_back(*c);
      }
    }
    split_changed_.notify_all();
    for (const int member : members) BellOf(member).Ring();
  }

  // Returns the world rank of the first member that has not arrived; -1: none. Throws Error{kComm}
  // if a missing member is lost.
  int MissingAtSplit(SplitKey key, std::span<const int> members) {
    const std::lock_guard lock(split_mutex_);
    return Missing(splits_.at(key), members);
  }

  void AwaitSplit(SplitKey key, std::span<const int> members, std::chrono::milliseconds deadline) {
    std::unique_lock lock(split_mutex_);
    const Split& split = splits_.at(key);
    if (split_changed_.wait_for(lock, deadline, [&] { return Missing(split, members) < 0; }))
      return;
    std::string missing;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!split.choices[i]) missing += (missing.empty() ? "" : ", ") + std::to_string(members[i]);
    }
    SPARFUSE_THROW(kTimeout, "split: rank ", missing, " did not arrive within ", deadline.count(),
                   " ms");
  }

  SplitResult LeaveSplit(SplitKey key) {
    const std::lock_guard lock(split_mutex_);
    Split& split = splits_.at(key);
    SplitResult result = split.result;
    if (++split.left == split.choices.size()) splits_.erase(key);
    return result;
  }

 private:
  using Posted = std::vector<OperationPointer>;  // in the order in which they were posted; few
  struct Endpoint {
    std::mutex mailbox_mutex;
    std::condition_variable copied;
    std::vector<Posted> from;  // [ranks] of messages to this rank; guarded by mailbox_mutex
    std::atomic<bool> lost{false};
    Doorbell* bell = nullptr;  // its own, or one shared by many ranks
    Doorbell own_bell;
  };
  struct Split {
    std::vector<std::optional<SplitChoice>> choices;
    std::size_t arrived = 0;
    std::size_t left = 0;
    SplitResult result;
  };

  Endpoint& EndpointOf(int rank) { return endpoints_[static_cast<std::size_t>(rank)]; }
  static Posted& PostedOf(Endpoint& endpoint, const Operation& operation) {
    return endpoint.from[static_cast<std::size_t>(operation.key.source)];
  }
  // Precondition: split_mutex_ is held.
  int Missing(const Split& split, std::span<const int> members) {
    if (split.arrived == members.size()) return -1;
    int first = -1;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (split.choices[i]) continue;
      if (first < 0) first = members[i];
      if (EndpointOf(members[i]).lost.load()) {
        SPARFUSE_THROW(kComm, "split: rank ", members[i], " is lost");
      }
    }
    return first;
  }

  std::vector<Endpoint> endpoints_;
  const bool threads_are_shared_;
  std::mutex split_mutex_;  // guards splits_, next_communicator_
  std::condition_variable split_changed_;
  std::map<SplitKey, Split> splits_;
  std::uint64_t next_communicator_ = 1;  // 0 is the world
};

// A rank's presence, shared by its communicators: it is lost with the last of them.
class Presence {
 public:
  Presence(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~Presence() { world_->MarkLost(rank_); }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  World& world() const { return *world_; }
  int rank() const { return rank_; }

 private:
  std::shared_ptr<World> world_;  // shared by the presences of all ranks
  int rank_;
};

class ThreadsRequest final : public Request {
 public:
  ThreadsRequest(World& world, OperationPointer operation, Traffic& traffic)
      : world_(world), operation_(std::move(operation)), traffic_(traffic) {
    world_.Post(operation_);
  }
  ~ThreadsRequest() override {
    if (!complete_) world_.Withdraw(operation_);
  }
  bool Test() override {
    if (complete_) return true;
    switch (operation_->progress.load()) {
      case Progress::kPosted:
      case Progress::kCopying:
        return false;
      case Progress::kPeerLost:
        SPARFUSE_THROW(kComm, "rank ", peer(), " is lost");
      case Progress::kTooLarge:
        SPARFUSE_THROW(kComm, "message of ", operation_->moved, " bytes from rank ", peer(),
                       ": expected at most ", operation_->size);
      case Progress::kDone:
        break;
    }
    complete_ = true;
    if (!operation_->is_send) {
      ++traffic_.messages_received;
      traffic_.bytes_received += operation_->moved;
    }
    return true;
  }
  std::size_t bytes() const noexcept override { return operation_->moved; }
  int peer() const noexcept override { return operation_->peer(); }

 private:
  World& world_;
  OperationPointer operation_;
  Traffic& traffic_;
  bool complete_ = false;
};

class SplitRequest final : public Request {
 public:
  SplitRequest(World& world, World::SplitKey key, std::span<const int> members)
      : world_(world), key_(key), members_(members) {}

  bool Test() override {
    missing_ = world_.MissingAtSplit(key_, members_);
    return missing_ < 0;
  }
  int peer() const noexcept override { return missing_; }

 private:
  World& world_;
  World::SplitKey key_;
  std::span<const int> members_;
  int missing_ = -1;
};

class ThreadsCommunicator final : public GroupCommunicator {
 public:
  ThreadsCommunicator(std::shared_ptr<Presence> presence, std::uint64_t id,
                      std::vector<int> members, int rank, Topology topology)
      : GroupCommunicator(std::move(members), rank, topology),
        presence_(std::move(presence)),
        id_(id) {}

  std::string_view backend() const noexcept override { return "threads"; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override {
    return IsendShared(destination, tag, {nullptr, data});
  }
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override {
    return StartReceive(source, tag, buffer.data(), buffer.size(), nullptr);
  }

  bool shares_memory() const noexcept override { return true; }
  std::unique_ptr<Request> IsendShared(int destination, int tag, SharedBytes data) override {
    CheckAddress(destination, size(), tag);
    auto operation = std::make_shared<Operation>();
    operation->key = {id_, presence_->rank(), WorldRank(destination), tag};
    operation->is_send = true;
    operation->data = const_cast<std::byte*>(data.bytes.data());
    operation->size = data.bytes.size();
    operation->sent = std::move(data);
    Traffic& traffic = CountSent(destination, operation->size);
    return std::make_unique<ThreadsRequest>(presence_->world(), std::move(operation), traffic);
  }
  std::unique_ptr<Request> IrecvShared(int source, int tag, SharedBytes& into) override {
    return StartReceive(source, tag, nullptr, std::numeric_limits<std::size_t>::max(), &into);
  }

  void Idle(std::chrono::nanoseconds limit) override {
    bell().Wait(MonotonicNanoseconds() + limit.count());
  }
  void Wake() noexcept override { bell().Ring(); }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    Arrive(color, key);
    presence_->world().AwaitSplit(split_, world_ranks(), deadline);
    return EndSplit();
  }
  std::unique_ptr<Request> StartSplit(int color, int key) override {
    if (!presence_->world().threads_are_shared()) return nullptr;
    Arrive(color, key);
    return std::make_unique<SplitRequest>(presence_->world(), split_, world_ranks());
  }
  std::unique_ptr<Communicator> EndSplit() override {
    const auto result = presence_->world().LeaveSplit(split_);
    const SplitGroup group = ComputeSplit(topology(), rank(), result.choices);
    const int color = result.choices[static_cast<std::size_t>(rank())].color;
    return std::make_unique<ThreadsCommunicator>(presence_, result.communicator_of_color.at(color),
                                                 WorldRanks(group.members), group.rank,
                                                 group.topology);
  }

 private:
  std::unique_ptr<Request> StartReceive(int source, int tag, std::byte* data, std::size_t size,
                                        SharedBytes* into) {
    CheckAddress(source, this->size(), tag);
    auto operation = std::make_shared<Operation>();
    operation->key = {id_, WorldRank(source), presence_->rank(), tag};
    operation->data = data;
    operation->size = size;
    operation->into = into;
    return std::make_unique<ThreadsRequest>(presence_->world(), std::move(operation),
                                            TrafficWith(source));
  }
  Doorbell& bell() { return presence_->world().BellOf(presence_->rank()); }
  void Arrive(int color, int key) {
    split_ = {id_, splits_++};
    presence_->world().ArriveAtSplit(split_, world_ranks(), rank(), {color, key});
  }

  std::shared_ptr<Presence> presence_;  // shared with this rank's other communicators
  std::uint64_t id_;
  std::uint64_t splits_ = 0;
  World::SplitKey split_;  // the last split at which it arrived
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadsWorld(int ranks, int ranks_per_node,
                                                            std::span<Doorbell* const> bells) {
  SPARFUSE_REQUIRE(ranks >= 1, "threads: ", ranks, " ranks: expected at least 1");
  RequireRanksPerNode("threads", ranks_per_node);
  const auto world = std::make_shared<World>(ranks, bells);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadsCommunicator>(
        std::make_shared<Presence>(world, rank), 0, AllRanks(ranks), rank,
        Topology{ranks, ranks_per_node}));
  }
  return communicators;
}

}  // namespace sparfuse
