#include "baselines/omnireduce/omnireduce_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "baselines/omnireduce/omnireduce.hpp"
#include "core/base/error.hpp"

namespace sparfuse::baselines {

StreamExchange::StreamExchange(const OmniReduceOptions& options, ExchangeBuffers& buffers,
                               std::size_t rank, std::size_t ranks)
    : cut_{buffers.shape.elements, options.block},
      own_(ViewSparsePayload(buffers.own)),
      index_(cut_, own_),
      rank_(rank) {
  const std::size_t room_for = buffers.gathered.size() / kSparseElementBytes;
  sums_.indices = {reinterpret_cast<std::uint32_t*>(buffers.gathered.data()), room_for};
  sums_.values = {reinterpret_cast<float*>(buffers.gathered.data()) + room_for, room_for};
  slots_.resize(
      OmniReduceStreams(buffers.shape.kept, options.block, options.bundle, options.slots, ranks));
  std::size_t words = 0;
  const auto stream = [&](std::size_t peer, std::size_t slot) {
    return cut_.all().Part(ranks, peer).Part(slots_.size(), slot);
  };
  const auto words_of = [&](std::size_t peer, std::size_t slot) {
    return cut_.MessageWords(stream(peer, slot), options.bundle);
  };
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    for (std::size_t peer = 0; peer < ranks; ++peer) words += 2 * words_of(peer, s);
    words += (ranks - 1) * words_of(rank, s);
  }
  float* room = reinterpret_cast<float*>(buffers.Keep(words * kWord).data());
  const auto take = [&](std::size_t many) {
    return std::span<float>(std::exchange(room, room + many), many);
  };
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    slot.arrived.assign(ranks, 0);
    slot.own.emplace(cut_, stream(rank, s), options.bundle, ranks, take(ranks * words_of(rank, s)));
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      slot.peers.push_back({{cut_, own_, index_, stream(peer, s), options.bundle}});
      slot.peers.back().result = take(words_of(peer, s));
      if (peer != rank) slot.peers.back().bundle = take(words_of(peer, s));
    }
  }
}

void StreamExchange::Send(Communicator& communicator, std::size_t to, int tag,
                          std::span<const float> message) {
  requests_.push_back(communicator.Isend(static_cast<int>(to), tag, std::as_bytes(message)));
}

void StreamExchange::Receive(Communicator& communicator, std::size_t from, int tag,
                             std::span<float> room, std::size_t* words) {
  arrivals_.push_back({requests_.size(), words});
  requests_.push_back(
      communicator.Irecv(static_cast<int>(from), tag, std::as_writable_bytes(room)));
}

void StreamExchange::PostBundles(Slot& slot, Communicator& communicator, int tag) {
  for (std::size_t peer = 0; peer < slot.peers.size(); ++peer) {
    const Peer& to = slot.peers[peer];
    if (peer == rank_ || to.bundle_words == 0) continue;
    Send(communicator, peer, tag, to.bundle.first(to.bundle_words));
    ++seen_[kBundles];
    seen_[kBundleWords] += to.bundle_words;
  }
  if (slot.peers[rank_].worker.done()) return;
  for (std::size_t peer = 0; peer < slot.peers.size(); ++peer) {
    if (peer == rank_ || !slot.own->Expects(peer)) continue;
    Receive(communicator, peer, tag, slot.own->Room(peer), &slot.arrived[peer]);
  }
}

void StreamExchange::PostResults(Slot& slot, Communicator& communicator, int tag) {
  const Peer& own = slot.peers[rank_];
  for (std::size_t peer = 0; peer < slot.peers.size(); ++peer) {
    if (peer == rank_) continue;
    if (own.result_words > 0) {
      Send(communicator, peer, tag, own.result.first(own.result_words));
    }
    Peer& from = slot.peers[peer];
    if (!from.worker.done()) {
      Receive(communicator, peer, tag, from.result, &from.result_words);
    }
  }
  if (own.result_words == 0) return;
  ++seen_[kResults];
  seen_[kResultWords] += own.result_words;
}

std::vector<std::unique_ptr<Request>> StreamExchange::Post(Communicator& communicator, int tag) {
  working_.clear();
  communicating_.clear();
  arrivals_.clear();
  requests_.clear();
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.phase == Slot::Phase::kDone || turn_ < s % 2) continue;
    if (!slot.communicates()) {
      working_.push_back(s);
      continue;
    }
    communicating_.push_back(&slot);
    const int tags = tag + static_cast<int>(2 * s);
    slot.phase == Slot::Phase::kBundles ? PostBundles(slot, communicator, tags)
                                        : PostResults(slot, communicator, tags + 1);
  }
  ++turn_;
  return std::move(requests_);
}

void StreamExchange::Take(std::size_t slot, std::size_t peer) {
  Peer& from = slots_[slot].peers[peer];
  if (from.result_words == 0) return;
  const std::size_t begin = sums_.used;
  from.worker.Take(from.result.first(from.result_words), sums_);
  segments_.push_back({peer, slot, begin, sums_.used - begin});
  from.result_words = 0;
}

void StreamExchange::Fill(std::size_t number) {
  Slot& slot = slots_[number];
  bool ended = true;
  for (std::size_t peer = 0; peer < slot.peers.size(); ++peer) {
    Take(number, peer);
    Peer& to = slot.peers[peer];
    to.bundle_words = 0;
    ended = ended && to.worker.done();
    if (!to.worker.sends()) continue;
    to.bundle_words = to.worker.Fill(peer == rank_ ? slot.own->Room(peer) : to.bundle);
    if (peer == rank_) slot.own->Arrived(peer, to.bundle_words);
  }
  slot.phase = ended ? Slot::Phase::kDone : Slot::Phase::kBundles;
}

void StreamExchange::Add(Slot& slot) {
  Peer& own = slot.peers[rank_];
  if (!own.worker.done()) {
    for (std::size_t peer = 0; peer < slot.peers.size(); ++peer) {
      if (slot.arrived[peer] > 0) slot.own->Arrived(peer, slot.arrived[peer]);
      slot.arrived[peer] = 0;
    }
    own.result_words = slot.own->Emit(own.result);
  }
  slot.phase = Slot::Phase::kResults;
}

void StreamExchange::Work() {
  for (const std::size_t number : working_) {
    Slot& slot = slots_[number];
    slot.phase == Slot::Phase::kFill ? Fill(number) : Add(slot);
  }
}

void StreamExchange::Finish(std::span<const std::unique_ptr<Request>> requests) {
  for (const Arrival& arrival : arrivals_) {
    const std::size_t bytes = requests[arrival.request]->bytes();
    if (bytes == 0 || bytes % kWord != 0) {
      SPARFUSE_THROW(kComm, "omnireduce: message of " + std::to_string(bytes) +
                                " bytes from rank " +
                                std::to_string(requests[arrival.request]->peer()) +
                                ": expected a multiple of " + std::to_string(kWord));
    }
    *arrival.words = bytes / kWord;
  }
  for (Slot* slot : communicating_) {
    if (slot->phase == Slot::Phase::kBundles) {
      for (const std::size_t words : slot->arrived) {
        seen_[kBundlesIn] += words > 0 ? 1 : 0;
        seen_[kBundleWordsIn] += words;
      }
    }
    slot->phase = slot->phase == Slot::Phase::kBundles ? Slot::Phase::kAdd : Slot::Phase::kFill;
  }
  if (!communicating_.empty()) ++seen_[kWaits];
}

void StreamExchange::Conclude(ExchangeBuffers& buffers) {
  for (const Slot& slot : slots_) seen_[kAdded] += slot.own->added();
  // Shard by shard, stream by stream; those of one stream came in the order of its blocks.
  std::ranges::stable_sort(
      segments_, {}, [](const Segment& segment) { return std::pair(segment.peer, segment.slot); });
  const std::size_t bytes = sums_.used * kSparseElementBytes;
  const std::span<std::byte> payload = buffers.Keep(bytes);
  std::byte* indices = payload.data();
  std::byte* values = indices + sums_.used * sizeof(std::uint32_t);
  for (const Segment& segment : segments_) {
    const std::size_t size = segment.count * kWord;
    if (size == 0) continue;
    std::memcpy(indices, sums_.indices.data() + segment.begin, size);
    std::memcpy(values, sums_.values.data() + segment.begin, size);
    indices += size;
    values += size;
    if (segment.peer == rank_) seen_[kSums] += segment.count;
  }
  buffers.payloads.assign(1, payload);
  buffers.seen.assign(seen_.begin(), seen_.end());
}

bool StreamExchange::done() const {
  return std::ranges::all_of(slots_, [](const Slot& s) { return s.phase == Slot::Phase::kDone; });
}

}  // namespace sparfuse::baselines
