// The communicator behind nccl.hpp; only its own sources include this.
//
//   nccl.cpp               set-up
//   nccl_communicator.cpp  what callers do: post, wait, split, give up
//   nccl_progress.cpp      what then happens: notices, launches, ends
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/nccl/control.hpp"
#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/launch_order.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

struct NcclOperation {
  enum class Kind : std::uint8_t { kSend, kReceive, kAllReduce, kAllGather };
  Kind kind;
  int peer = -1;  // of a message
  int tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;     // of `data`; of a receive, once matched, what came
  std::uint64_t number = 0;  // of messages between two ranks, or of collectives
  Place proposed{};          // of a receive
  std::span<std::byte> gathered{};
  std::size_t capacity = 0;  // of each rank in `gathered`
  std::size_t stride = 0;    // between payloads in it
  std::vector<std::span<const std::byte>>* by_rank = nullptr;
  bool complete = false;
};

// What went to the device as one.
struct NcclLaunch {
  std::vector<NcclOperation*> operations;
  gpu::GpuEvent end;
};

// What a world and the communicators split from it share: Idle of one of them waits for all.
struct NcclSession {
  int in_flight = 0;                                  // launches
  std::int64_t last_change = MonotonicNanoseconds();  // launch or completion
};

class NcclCommunicator final : public Communicator {
 public:
  using Operation = NcclOperation;
  using Launch = NcclLaunch;

  NcclCommunicator(const NcclApi& api, std::shared_ptr<NcclSession> session, NcclSetup setup,
                   std::unique_ptr<Communicator> control)
      : api_(api),
        session_(std::move(session)),
        setup_(std::move(setup)),
        control_(std::move(control)),
        stream_(setup_.device, gpu::Priority::kHigh),
        handle_(api),
        sent_(static_cast<std::size_t>(size())) {}

  ~NcclCommunicator() override {
    try {
      if (!failure_) Close();
    } catch (const Error& error) {
      Fail(error, true);
    }
    handle_.Abort();  // before the stream, which waits for its work
  }

  // Blocks until NCCL's communicator is made.
  void Connect(const NcclUniqueId& id) {
    try {
      handle_.Init(size(), id, rank(), setup_.device.index);
      WaitUntilSettled("the set-up among " + std::to_string(size()) + " ranks");
    } catch (const Error& error) {
      Fail(error, true);
      throw;
    }
  }

  std::string_view backend() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return setup_.host->rank(); }
  int size() const noexcept override { return setup_.host->size(); }
  const Topology& topology() const noexcept override { return setup_.host->topology(); }
  Stream stream() const noexcept override { return stream_.view(); }
  Communicator& host() noexcept override { return *setup_.host; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override;
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override;
  std::unique_ptr<Request> NativeAllReduceSum(std::span<float> buffer) override;
  bool has_native_all_reduce() const noexcept override { return true; }
  std::unique_ptr<Request> NativeAllGather(
      std::span<const std::byte> own, std::span<std::byte> gathered, std::size_t capacity_bytes,
      std::vector<std::span<const std::byte>>& by_rank) override;
  bool has_native_all_gather() const noexcept override { return true; }

  void Idle(std::chrono::nanoseconds limit) override;
  void Wake() noexcept override { control_.host().Wake(); }
  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override;
  const TrafficByLink& traffic() const noexcept override { return traffic_; }

  // Starts and ends what can be. Throws the error that broke the communicator.
  void Advance() {
    if (failure_) throw Error(*failure_);
    try {
      Progress();
    } catch (const Error& error) {
      Fail(error, true);
      throw Error(*failure_);
    }
  }
  // The rank in the world that it waits for, or -1.
  int WaitsFor(const Operation& operation) const;
  // An unfinished request is destroyed; what it holds must not be touched any more.
  void GiveUp(const Operation& operation) noexcept {
    Fail(Error(FailureKind::kComm, Describe(operation) + " was given up"), true);
  }

 private:
  using Counts = std::vector<std::optional<std::uint64_t>>;  // by rank
  using PeerAndTag = std::pair<int, int>;
  using PeerAndNumber = std::pair<int, std::uint64_t>;
  using Way = std::pair<int, Operation::Kind>;  // to or from a peer
  struct Announced {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
  };

  void Progress();
  void Take(int peer, const Notice& notice, std::string_view text);
  void TakeCount(int peer, const Notice& notice);
  void Match(PeerAndTag key);
  void FinishLaunches();
  bool LaunchNext();
  void LaunchMessages(std::vector<Operation*> messages);
  bool LaunchCollective(Operation& collective);
  void LaunchAllGather(Operation& gather);
  void Issued(std::vector<Operation*> operations);
  void Launched(std::vector<Operation*> operations);
  void Finish(Operation& operation);
  void CheckLost() const;
  void Fail(const Error& error, bool tell) noexcept;
  void WaitUntilSettled(const std::string& what);
  void Close();
  std::string Describe(const Operation& operation) const;
  std::string UnderWay() const;

  std::string RankName(int peer) const {
    return "rank " + std::to_string(peer == rank() ? peer : control_.WorldRank(peer));
  }
  Counts& CountsOf(std::uint64_t collective) {
    Counts& counts = counts_[collective];
    counts.resize(static_cast<std::size_t>(size()));
    return counts;
  }
  static bool AllKnown(const Counts& counts) {
    return std::all_of(counts.begin(), counts.end(), [](const auto& c) { return c.has_value(); });
  }
  Traffic& TrafficWith(int peer) {
    return traffic_[static_cast<std::size_t>(topology().LinkBetween(rank(), peer))];
  }

  const NcclApi& api_;
  std::shared_ptr<NcclSession> session_;  // shared with what was split from the same world
  NcclSetup setup_;
  NcclControl control_;
  gpu::GpuStream stream_;
  NcclHandle handle_;
  std::optional<Error> failure_;

  // Operations belong to their requests, which leave when complete or break the communicator.
  std::vector<Operation*> unstarted_;
  LaunchOrder<Operation*> order_;
  std::vector<std::uint64_t> sent_;                        // messages to each rank
  std::map<PeerAndNumber, Operation*> announced_;          // sends whose acceptance is awaited
  std::map<PeerAndNumber, Operation*> accepted_;           // receives whose place is awaited
  std::map<PeerAndTag, std::deque<Operation*>> receives_;  // not matched
  std::map<PeerAndTag, std::deque<Announced>> announcements_;
  std::map<std::uint64_t, Counts> counts_;  // of all-gathers not started
  std::vector<Operation*> issuing_;         // NCCL is busy with them
  std::set<Way> linked_;                    // NCCL has moved a message there
  std::deque<Launch> running_;
  std::vector<gpu::GpuEvent> spare_events_;

  std::int64_t served_ = 0;
  TrafficByLink traffic_{};
};

// Collective over setup.host, up to the deadline (nccl.hpp).
std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup);

}  // namespace sparfuse
