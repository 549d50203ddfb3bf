#include "core/transport/nccl/control.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

constexpr int kTag = 0;

}  // namespace

NcclControl::NcclControl(std::unique_ptr<Communicator> host)
    : host_(std::move(host)), peers_(static_cast<std::size_t>(host_->size())) {
  for (int peer = 0; peer < host_->size(); ++peer) {
    if (peer == host_->rank()) continue;
    peers_[static_cast<std::size_t>(peer)].inbox = std::make_unique<Message>();
    Listen(peer);
  }
}

void NcclControl::Listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.receive = host_->Irecv(peer, kTag, std::as_writable_bytes(std::span(from.inbox.get(), 1)));
  from.world_rank = from.receive->peer();
}

void NcclControl::Send(int peer, const Notice& notice, std::string_view text) {
  if (At(peer).lost) return;
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.peer = peer;
  outgoing.message.notice = notice;
  const std::size_t length = std::min(text.size(), kLongestText);
  std::copy_n(text.data(), length, outgoing.message.text.data());
  try {
    outgoing.send = host_->Isend(
        peer, kTag, std::as_bytes(std::span(&outgoing.message, 1)).first(sizeof(Notice) + length));
  } catch (const Error& error) {
    outgoing_.pop_back();
    Lose(peer, error.what());
  }
}

void NcclControl::SendAll(const Notice& notice, std::string_view text) {
  for (int peer = 0; peer < host_->size(); ++peer) {
    if (peer != host_->rank()) Send(peer, notice, text);
  }
}

void NcclControl::Service(const Take& take) {
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

void NcclControl::Lose(int peer, const char* what) {
  Peer& lost = peers_[static_cast<std::size_t>(peer)];
  lost.receive.reset();
  if (!lost.lost) lost.lost = Lost{what, Clock::now()};
  any_lost_ = true;
}

}  // namespace sparfuse
