// Declares the communicator behind nccl.hpp, and the notices that its ranks send outside of NCCL,
// through host memory. Only its own sources include this header.
//
//   nccl.cpp           sets it up
//   communicator.cpp   the callers' operations (post, wait, split, give up) and their progress
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

struct Notice {
  enum class Kind : std::uint32_t {
    kCount,   // collective `number` is an all-gather to which the sender gives `bytes`
    kGaveUp,  // nothing more will come; the text says why
  };
  Kind kind = Kind::kGaveUp;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
};

// Sends and receives notices on a host communicator of its own. Notices of one rank arrive in the
// order of their sending.
class NcclControl {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclControl(std::unique_ptr<Communicator> host);

  // text: only its first characters are sent.
  void Send(int peer, const Notice& notice, std::string_view text = "");
  void SendAll(const Notice& notice, std::string_view text = "");

  // Passes all received notices to `take`.
  using Take = std::function<void(int peer, const Notice& notice, std::string_view text)>;
  void Service(const Take& take);

  // A peer that the host transport lost, and the time of that discovery.
  struct Lost {
    std::string what;  // "rank 2 is lost"
    Clock::time_point since;
  };
  const std::optional<Lost>& lost(int peer) const { return At(peer).lost; }
  bool any_lost() const { return any_lost_; }

  // The world rank of a rank of this group; unknown for this rank itself.
  int WorldRank(int peer) const { return At(peer).world_rank; }

  Communicator& host() { return *host_; }

 private:
  static constexpr std::size_t kLongestText = 400;
  struct Message {
    Notice notice;
    std::array<char, kLongestText> text{};
  };
  struct Peer {
    std::unique_ptr<Message> inbox;
    std::unique_ptr<Request> receive;  // null for this rank, and once the peer is lost
    std::optional<Lost> lost;
    int world_rank = -1;
  };
  struct Outgoing {
    int peer = 0;
    Message message;
    std::unique_ptr<Request> send;
  };
  const Peer& At(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  void Listen(int peer);
  void Lose(int peer, const char* what);

  std::unique_ptr<Communicator> host_;
  std::vector<Peer> peers_;       // requests are destroyed before the communicator,
  std::list<Outgoing> outgoing_;  // as are these
  bool any_lost_ = false;
};

struct NcclOperation {
  enum class Kind : std::uint8_t { kAllReduce, kAllGather, kRingStep };
  Kind kind;
  std::byte* data = nullptr;  // input; of an all-reduce also the result
  std::size_t bytes = 0;      // of `data`
  std::uint64_t number = 0;   // in the order of posting
  std::span<std::byte> received{};
  std::size_t capacity = 0;                                    // all-gather: of each rank
  std::vector<std::span<const std::byte>>* by_rank = nullptr;  // all-gather
  RingNeighbours ring{};
  int messages = 0;  // ring step
  bool complete = false;
};

// The state that a world and the communicators split from it share: Idle of one of them waits for
// all.
struct NcclSession {
  int in_flight = 0;                                  // launches
  std::int64_t last_change = MonotonicNanoseconds();  // launch or completion
};

class NcclCommunicator final : public Communicator {
 public:
  using Operation = NcclOperation;

  NcclCommunicator(const NcclApi& api, std::shared_ptr<NcclSession> session, NcclSetup setup,
                   std::unique_ptr<Communicator> control);
  ~NcclCommunicator() override;

  // Blocks until NCCL's communicator is made.
  void Connect(const NcclUniqueId& id);

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
  std::unique_ptr<Request> NativeRingStep(RingNeighbours ring, std::span<const std::byte> out,
                                          std::span<std::byte> in, int messages) override;

  void Idle(std::chrono::nanoseconds limit) override;
  void Wake() noexcept override { control_.host().Wake(); }
  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override;
  const TrafficByLink& traffic() const noexcept override { return traffic_; }

  // Starts and completes all operations that can. Throws the error that broke the communicator.
  void Advance();
  // The world rank that the operation waits for, or -1.
  int WaitsFor(const Operation& operation) const;
  // Called when an unfinished request is destroyed; its buffers must not be accessed any more.
  void GiveUp(const Operation& operation) noexcept;

 private:
  using Counts = std::vector<std::optional<std::uint64_t>>;  // by rank
  struct Launch {
    Operation* operation;
    gpu::GpuEvent end;
  };

  std::unique_ptr<Request> Post(Operation operation);
  void Take(int peer, const Notice& notice, std::string_view text);
  void Progress();
  bool LaunchNext();
  bool LaunchAllGather(Operation& gather);
  void LaunchRingStep(const Operation& step);
  void Launched();
  void FinishLaunches();
  void Finish(Operation& operation);
  void CheckLost() const;
  void Fail(const Error& error, bool tell) noexcept;
  void WaitUntilSettled(const std::string& what);
  std::string UnderWay() const;
  std::string RankName(int peer) const;
  Counts& CountsOf(std::uint64_t number);

  const NcclApi& api_;
  std::shared_ptr<NcclSession> session_;
  NcclSetup setup_;
  NcclControl control_;
  gpu::GpuStream stream_;
  NcclHandle handle_;
  std::optional<Error> failure_;

  // Requests own the operations. A request ends when it is complete, or breaks the communicator.
  // Operations go from posted_ through issuing_ to running_, in the order of their numbers.
  std::uint64_t next_number_ = 0;
  std::deque<Operation*> posted_;
  Operation* issuing_ = nullptr;  // NCCL is busy with this operation
  std::deque<Launch> running_;
  std::map<std::uint64_t, Counts> counts_;  // of all-gathers that are not issued
  std::vector<gpu::GpuEvent> spare_events_;

  std::int64_t served_ = 0;
  TrafficByLink traffic_{};  // always zero
};

// Collective over setup.host, up to the deadline (nccl.hpp).
std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup);

}  // namespace sparfuse
