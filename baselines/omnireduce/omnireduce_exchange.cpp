
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "baselines/omnireduce/omnireduce.hpp"
#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse::baselines {

namespace {

float WordOf(std::uint32_t number) { return std::bit_cast<float>(number); }

[[noreturn]] void ThrowMalformed(const std::string& what) {
  SPARFUSE_THROW(kComm, "omnireduce: malformed message: " + what +
                            "; ranks disagree on the elements or the options");
}

// Calls visit(number, elements) for the records of a message; returns its last word. Throws
// Error{kComm} unless the numbers increase and lie in [least, end).
template <class Visit>
std::uint32_t ReadMessage(const BlockCut& cut, std::span<const float> message, std::size_t least,
                          std::size_t end, const Visit& visit) {
  if (message.empty()) ThrowMalformed("it is empty");
  std::size_t at = 0;
  const std::size_t last = message.size() - 1;
  while (at < last) {
    const auto number = std::bit_cast<std::uint32_t>(message[at]);
    if (number < least || number >= end) {
      ThrowMalformed("block " + std::to_string(number) + ": expected one from " +
                     std::to_string(least) + " to below " + std::to_string(end));
    }
    const std::size_t floats = cut.Floats(number);
    if (floats > last - at - 1) {
      ThrowMalformed("block " + std::to_string(number) + " has " + std::to_string(last - at - 1) +
                     " elements: expected " + std::to_string(floats));
    }
    visit(number, message.subspan(at + 1, floats));
    least = std::size_t{number} + 1;
    at += 1 + floats;
  }
  const auto next = std::bit_cast<std::uint32_t>(message[last]);
  if (next != kNone && (next < least || next >= end)) {
    ThrowMalformed("the block that follows is " + std::to_string(next) + ": expected one from " +
                   std::to_string(least) + " to below " + std::to_string(end));
  }
  return next;
}

}  // namespace

BlockRange BlockRange::Part(std::size_t parts, std::size_t i) const {
  const std::size_t each = size() / parts;
  const std::size_t more = size() % parts;
  const std::size_t first = begin + i * each + std::min(i, more);
  return {first, first + each + (i < more ? 1 : 0)};
}

std::size_t BlockCut::Floats(std::size_t number) const {
  return std::min(block, elements - number * block);
}

std::size_t BlockCut::MessageWords(BlockRange stream, std::size_t bundle) const {
  return std::min(bundle, stream.size()) * (1 + std::min(block, elements)) + 1;
}

BlockIndex::BlockIndex(const BlockCut& cut, const SparsePayload& payload) {
  std::size_t end = 0;  // of the last block begun
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    const std::size_t index = payload.indices[i];
    if (index < end) continue;
    if (index >= cut.elements) {
      SPARFUSE_THROW(kInternal, "omnireduce: the payload has index " + std::to_string(index) +
                                    ": expected one below " + std::to_string(cut.elements));
    }
    numbers.push_back(static_cast<std::uint32_t>(index / cut.block));
    firsts.push_back(i);
    end = std::min(cut.elements, (index / cut.block + 1) * cut.block);
  }
  firsts.push_back(payload.indices.size());
}

WorkerStream::WorkerStream(const BlockCut& cut, const SparsePayload& own, const BlockIndex& index,
                           BlockRange stream, std::size_t bundle)
    : cut_(cut),
      own_(own),
      index_(&index),
      stream_(stream),
      bundle_(bundle),
      done_(stream.size() == 0) {
  const auto position = [&](std::size_t block) {
    const auto& numbers = index.numbers;
    return static_cast<std::size_t>(std::lower_bound(numbers.begin(), numbers.end(), block) -
                                    numbers.begin());
  };
  next_ = given_ = position(stream.begin);
  end_ = position(stream.end);
}

bool WorkerStream::sends() const {
  if (done_) return false;
  return !heard_ || (next_ < end_ && next_ - given_ < bundle_);
}

std::size_t WorkerStream::Fill(std::span<float> message) {
  heard_ = true;
  std::size_t at = 0;
  for (; next_ < end_ && next_ - given_ < bundle_; ++next_) {
    const std::uint32_t number = index_->numbers[next_];
    const std::size_t floats = cut_.Floats(number);
    message[at] = WordOf(number);
    const std::span<float> elements = message.subspan(at + 1, floats);
    std::fill(elements.begin(), elements.end(), 0.0f);
    for (std::size_t i = index_->firsts[next_]; i < index_->firsts[next_ + 1]; ++i) {
      elements[own_.indices[i] - number * cut_.block] = own_.values[i];
    }
    at += 1 + floats;
  }
  message[at] = WordOf(next_ < end_ ? index_->numbers[next_] : kNone);
  return at + 1;
}

void WorkerStream::Take(std::span<const float> message, SumRoom& sums) {
  const auto take = [&](std::uint32_t number, std::span<const float> elements) {
    const std::size_t room = sums.indices.size() - sums.used;
    const bool all_fit = elements.size() <= room;
    const auto count = all_fit ? elements.size()
                               : static_cast<std::size_t>(std::ranges::count_if(
                                     elements, [](float value) { return value != 0; }));
    if (count > room) {
      ThrowMalformed("there is room for " + std::to_string(room) + " more sums, and block " +
                     std::to_string(number) + " has " + std::to_string(count));
    }
    auto index = static_cast<std::uint32_t>(number * cut_.block);
    std::size_t to = sums.used;
    if (all_fit) {
      for (const float value : elements) {  // without branches: zeros cannot be predicted
        sums.indices[to] = index++;
        sums.values[to] = value;
        to += value != 0;
      }
    } else {
      for (const float value : elements) {
        if (value != 0) {
          sums.indices[to] = index;
          sums.values[to++] = value;
        }
        ++index;
      }
    }
    sums.used = to;
  };
  const std::uint32_t asked = ReadMessage(cut_, message, stream_.begin, stream_.end, take);
  while (given_ < next_ && index_->numbers[given_] < asked) ++given_;
  done_ = asked == kNone;
}

AggregatorStream::AggregatorStream(const BlockCut& cut, BlockRange stream, std::size_t bundle,
                                   std::size_t ranks, std::span<float> room)
    : cut_(cut), stream_(stream), bundle_(bundle), kept_(ranks) {
  const std::size_t words = cut.MessageWords(stream, bundle);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    kept_[rank].room = room.subspan(rank * words, words);
  }
}

bool AggregatorStream::Expects(std::size_t rank) const {
  const Kept& kept = kept_[rank];
  return !kept.heard || (kept.next != kNone && kept.blocks < bundle_);
}

std::span<float> AggregatorStream::Room(std::size_t rank) {
  return kept_[rank].room.subspan(kept_[rank].words);
}

void AggregatorStream::Arrived(std::size_t rank, std::size_t words) {
  Kept& kept = kept_[rank];
  // The worker goes on at the block that it announced.
  const std::size_t least = std::max<std::size_t>(stream_.begin, kept.heard ? kept.next : 0);
  std::size_t blocks = 0;
  kept.next = ReadMessage(cut_, Room(rank).first(words), least, stream_.end,
                          [&](std::uint32_t, std::span<const float>) { ++blocks; });
  kept.words += words - 1;
  kept.blocks += blocks;
  kept.heard = true;
}

std::size_t AggregatorStream::Emit(std::span<float> message) {
  std::uint32_t bound = kNone;
  for (const Kept& kept : kept_) bound = std::min(bound, kept.next);
  std::size_t at = 0;
  std::uint32_t number = kNone;
  for (std::size_t given = 0;; ++given) {
    number = kNone;
    for (const Kept& kept : kept_) number = std::min(number, kept.head());
    if (number >= bound || given == bundle_) break;
    const std::size_t floats = cut_.Floats(number);
    const std::span<float> sum = message.subspan(at + 1, floats);
    bool first = true;
    for (Kept& kept : kept_) {  // in the order of the ranks
      if (kept.head() != number) continue;
      const std::span<const float> elements = kept.room.subspan(kept.read + 1, floats);
      if (first) {
        std::copy(elements.begin(), elements.end(), sum.begin());
      } else {
        AddInto(elements, sum);
      }
      first = false;
      added_ += floats;
      kept.read += 1 + floats;
      --kept.blocks;
    }
    message[at] = WordOf(number);
    at += 1 + floats;
  }
  message[at] = WordOf(std::min(number, bound));
  for (Kept& kept : kept_) {  // moves the unread rest to the front
    std::copy(kept.room.begin() + static_cast<std::ptrdiff_t>(kept.read),
              kept.room.begin() + static_cast<std::ptrdiff_t>(kept.words), kept.room.begin());
    kept.words -= kept.read;
    kept.read = 0;
  }
  return at + 1;
}

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
  // Sorts by shard and stream; the segments of a stream came in the order of its blocks.
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
