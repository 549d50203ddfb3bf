// Sends notices among the ranks of an NCCL communicator outside of NCCL, through host memory.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
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
// order of their sending.
class NcclControl {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclControl(std::unique_ptr<Communicator> host)
      : host_(std::move(host)), peers_(static_cast<std::size_t>(host_->size())) {
    for (int peer = 0; peer < host_->size(); ++peer) {
      if (peer == host_->rank()) continue;
      peers_[static_cast<std::size_t>(peer)].inbox = std::make_unique<Message>();
      Listen(peer);
    }
  }

  // text: only its first characters are sent.
  void SendAll(const Notice& notice, std::string_view text = "") {
    for (int peer = 0; peer < host_->size(); ++peer) {
      if (peer != host_->rank()) Send(peer, notice, text);
    }
  }

  // Passes all received notices to `take`.
  using Take = std::function<void(int peer, const Notice& notice, std::string_view text)>;
  void Service(const Take& take) {
    for (int peer = 0; peer < host_->size(); ++peer) {
      Peer& from = peers_[static_cast<std::size_t>(peer)];
      for (;;) {
        Message message;
        std::size_t bytes = 0;
        try {
          if (!from.receive || !from.receive->Test()) break;
          bytes = from.receive->bytes();
          message = *from.inbox;
          Listen(peer);
        } catch (const Error& error) {
          Lose(peer, error.what());
          if (bytes == 0) break;
        }
        take(peer, message.notice, {message.text.data(), bytes - sizeof(Notice)});
      }
    }
    std::erase_if(outgoing_, [this](const Outgoing& outgoing) {
      try {
        return outgoing.send->Test();
      } catch (const Error& error) {
        Lose(outgoing.peer, error.what());
        return true;
      }
    });
  }

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
  static constexpr int kTag = 0;
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
  void Send(int peer, const Notice& notice, std::string_view text) {
    if (At(peer).lost) return;
    Outgoing& outgoing = outgoing_.emplace_back();
    outgoing.peer = peer;
    outgoing.message.notice = notice;
    const std::size_t length = std::min(text.size(), kLongestText);
    std::copy_n(text.data(), length, outgoing.message.text.data());
    try {
      outgoing.send = host_->Isend(
          peer, kTag,
          std::as_bytes(std::span(&outgoing.message, 1)).first(sizeof(Notice) + length));
    } catch (const Error& error) {
      outgoing_.pop_back();
      Lose(peer, error.what());
    }
  }
  void Listen(int peer) {
    Peer& from = peers_[static_cast<std::size_t>(peer)];
    from.receive = host_->Irecv(peer, kTag, std::as_writable_bytes(std::span(from.inbox.get(), 1)));
    from.world_rank = from.receive->peer();
  }
  void Lose(int peer, const char* what) {
    Peer& lost = peers_[static_cast<std::size_t>(peer)];
    lost.receive.reset();
    if (!lost.lost) lost.lost = Lost{what, Clock::now()};
    any_lost_ = true;
  }

  std::unique_ptr<Communicator> host_;
  std::vector<Peer> peers_;       // requests are destroyed before the communicator,
  std::list<Outgoing> outgoing_;  // as are these
  bool any_lost_ = false;
};

}  // namespace sparfuse
