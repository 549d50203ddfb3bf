#include "core/transport/liveness.hpp"

#include <cstddef>
#include <span>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

constexpr int kTag = 0;

std::string ListRanks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Liveness::Liveness(std::unique_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      peers_(static_cast<std::size_t>(communicator_->size())) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    if (rank == communicator_->rank()) continue;
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.receive =
        communicator_->Irecv(rank, kTag, std::as_writable_bytes(std::span(&peer.inbox, 1)));
  }
}

void Liveness::Service(int waiting_for) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    try {
      while (peer.receive && peer.receive->Test()) {
        const Message message = peer.inbox;
        peer.last_heard = std::chrono::steady_clock::now();
        peer.waiting_for = message.waiting_for;
        peer.receive =
            communicator_->Irecv(rank, kTag, std::as_writable_bytes(std::span(&peer.inbox, 1)));
        if (message.wants_answer != 0) Send(rank, {0, waiting_for});
      }
    } catch (const Error&) {
      peer.receive.reset();
      peer.last_heard = {};
    }
  }
  std::erase_if(outgoing_, [](Outgoing& outgoing) {
    try {
      return outgoing.send->Test();
    } catch (const Error&) {
      return true;
    }
  });
}

void Liveness::PingAll(int waiting_for) {
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    if (!peers_[static_cast<std::size_t>(rank)].receive) continue;
    try {
      Send(rank, {1, waiting_for});
    } catch (const Error&) {
      peers_[static_cast<std::size_t>(rank)].receive.reset();
    }
  }
}

void Liveness::Send(int peer, Message message) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.message = message;
  try {
    outgoing.send =
        communicator_->Isend(peer, kTag, std::as_bytes(std::span(&outgoing.message, 1)));
  } catch (...) {
    outgoing_.pop_back();
    throw;
  }
}

std::string Liveness::Describe(int waiting_for,
                               std::chrono::steady_clock::time_point pinged) const {
  std::vector<int> silent;
  std::vector<int> idle;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == communicator_->rank()) continue;
    if (!peer.receive || peer.last_heard < pinged) {
      silent.push_back(rank);
    } else if (peer.waiting_for == kNothing) {
      idle.push_back(rank);
    }
  }
  if (!silent.empty()) {
    return ListRanks(silent) + (silent.size() == 1 ? " does not answer" : " do not answer");
  }
  if (waiting_for < 0) {  // a native collective, which does not tell its peers
    if (idle.empty()) return "all ranks answer and wait for the backend's own collective";
    return ListRanks(idle) + (idle.size() == 1 ? " answers" : " answer") + " but did not take part";
  }
  int culprit = waiting_for;
  for (std::size_t hops = 0; hops < peers_.size(); ++hops) {
    const int next = peers_[static_cast<std::size_t>(culprit)].waiting_for;
    if (next < 0 || next == communicator_->rank()) break;
    culprit = next;
  }
  return ListRanks({culprit}) + " answers but did not send";
}

}  // namespace sparfuse
