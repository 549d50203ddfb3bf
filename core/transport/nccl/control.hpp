// Sends notices between the ranks of an NCCL communicator, beside NCCL, through host memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/transport/communicator.hpp"

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
// order in which it sent them.
class NcclControl {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclControl(std::unique_ptr<Communicator> host);

  // text: only its first characters are sent.
  void Send(int peer, const Notice& notice, std::string_view text = "");
  void SendAll(const Notice& notice, std::string_view text = "");

  // Hands over all that came.
  using Take = std::function<void(int peer, const Notice& notice, std::string_view text)>;
  void Service(const Take& take);

  // A peer that the host transport lost, and when that was seen.
  struct Lost {
    std::string what;  // "rank 2 is lost"
    Clock::time_point since;
  };
  const std::optional<Lost>& lost(int peer) const { return At(peer).lost; }
  bool any_lost() const { return any_lost_; }

  // The rank in the world of a rank of this group; of this rank itself unknown.
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

}  // namespace sparfuse
