// Implements a communicator over the connections of a TcpSession.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/transport/group.hpp"
#include "core/transport/tcp/meeting.hpp"
#include "core/transport/tcp/session.hpp"
#include "core/transport/tcp/tcp.hpp"

namespace sparfuse {
namespace {

constexpr int kSplitTag = 1 << 15;  // above the callers' tags

class TcpRequest final : public Request {
 public:
  // `traffic` counts a receive; may be null.
  TcpRequest(std::shared_ptr<TcpSession> session, TcpOperationPointer operation, Traffic* traffic)
      : session_(std::move(session)), operation_(std::move(operation)), traffic_(traffic) {}
  ~TcpRequest() override {
    if (!operation_->done) session_->Abandon(*operation_);
  }

  bool Test() override {
    if (complete_) return true;
    if (!operation_->done) session_->Progress();
    if (!operation_->done) {
      const int lost = session_->LostFor(peer());
      if (lost >= 0) {
        SPARFUSE_THROW(kComm, "rank ", lost, " is lost", session_->WhyLost(lost));
      }
      return false;
    }
    if (operation_->too_large) {
      SPARFUSE_THROW(kComm, "message of ", operation_->moved, " bytes from rank ", peer(),
                     ": expected at most ", operation_->size);
    }
    complete_ = true;
    if (traffic_ != nullptr) {
      ++traffic_->messages_received;
      traffic_->bytes_received += operation_->moved;
    }
    return true;
  }
  std::size_t bytes() const noexcept override { return operation_->moved; }
  int peer() const noexcept override { return operation_->peer; }

 private:
  // Shared ownership: an abandoned receive may outlive the communicator.
  std::shared_ptr<TcpSession> session_;
  TcpOperationPointer operation_;
  Traffic* traffic_;
  bool complete_ = false;
};

class TcpCommunicator final : public GroupCommunicator {
 public:
  TcpCommunicator(std::shared_ptr<TcpSession> session, std::uint64_t id, std::vector<int> members,
                  int rank, Topology topology)
      : GroupCommunicator(std::move(members), rank, topology),
        session_(std::move(session)),
        id_(id) {}

  std::string_view backend() const noexcept override { return "tcp"; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override {
    CheckAddress(destination, size(), tag);
    CountSent(destination, data.size());
    return StartSend(destination, tag, data);
  }
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override {
    CheckAddress(source, size(), tag);
    return StartReceive(source, tag, buffer, &TrafficWith(source));
  }

  void Idle(std::chrono::nanoseconds limit) override { session_->Idle(limit); }
  void Wake() noexcept override { session_->Wake(); }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    const auto choices = GatherFromPeers(
        *this, SplitChoice{color, key}, deadline, "split",
        [this](int peer, auto bytes) { return StartSend(peer, kSplitTag, bytes); },
        [this](int peer, auto bytes) { return StartReceive(peer, kSplitTag, bytes, nullptr); });
    const SplitGroup group = ComputeSplit(topology(), rank(), choices);
    // Equal on all members, without another message.
    const std::array<std::uint64_t, 3> made_of{id_, ++splits_, static_cast<std::uint64_t>(color)};
    const std::uint64_t id = FnvOf({reinterpret_cast<const char*>(made_of.data()), sizeof made_of});
    return std::make_unique<TcpCommunicator>(session_, id, WorldRanks(group.members), group.rank,
                                             group.topology);
  }

 private:
  std::unique_ptr<Request> StartSend(int destination, int tag, std::span<const std::byte> data) {
    return std::make_unique<TcpRequest>(
        session_, session_->Send(WorldRank(destination), id_, tag, data), nullptr);
  }
  std::unique_ptr<Request> StartReceive(int source, int tag, std::span<std::byte> buffer,
                                        Traffic* traffic) {
    return std::make_unique<TcpRequest>(
        session_, session_->Receive(WorldRank(source), id_, tag, buffer), traffic);
  }

  std::shared_ptr<TcpSession> session_;  // shared with the communicators split from this one
  std::uint64_t id_;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> MakeTcpWorld(TcpListener listener,
                                           std::span<const std::string> addresses, int rank,
                                           int ranks_per_node, std::chrono::milliseconds deadline,
                                           TcpSignals signals) {
  const int ranks = static_cast<int>(addresses.size());
  SPARFUSE_REQUIRE(rank >= 0 && rank < ranks, "tcp: rank ", rank, " of ", ranks,
                   ": expected a rank below the number of addresses");
  RequireRanksPerNode("tcp", ranks_per_node);
  auto session = std::make_shared<TcpSession>(
      MeetRanks(std::move(listener.socket_), addresses, rank, deadline, signals.stop), rank,
      std::move(signals.failure));
  return std::make_unique<TcpCommunicator>(std::move(session), 0, AllRanks(ranks), rank,
                                           Topology{ranks, ranks_per_node});
}

}  // namespace sparfuse
