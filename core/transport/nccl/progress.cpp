// Notices, launches and their ends.
#include <algorithm>

#include "core/transport/nccl/communicator.hpp"

namespace sparfuse {
namespace {

// How often notices are looked at while nothing waits for them: a peer may have given up.
constexpr std::int64_t kServiceNanoseconds = 1'000'000;
// Where padded payloads begin, as far as the capacity allows.
constexpr std::size_t kAlignment = 16;
// Messages that NCCL runs at once on a channel, and so in whatever group its peers have them.
constexpr std::size_t kLargestGroup = 8;

}  // namespace

void NcclCommunicator::Progress() {
  const std::int64_t now = MonotonicNanoseconds();
  if (!unstarted_.empty() || now - served_ > kServiceNanoseconds) {
    served_ = now;
    control_.Service([this](int peer, const Notice& notice, std::string_view text) {
      Take(peer, notice, text);
    });
  }
  bool settled = false;
  try {
    settled = handle_.Settled();
  } catch (const Error& error) {
    throw Error(error.kind(), error.what() + UnderWay());
  }
  if (settled && !issuing_.empty()) Launched(std::exchange(issuing_, {}));
  FinishLaunches();
  while (settled && issuing_.empty() && LaunchNext()) settled = handle_.Settled();
  if (control_.any_lost()) CheckLost();
}

void NcclCommunicator::Take(int peer, const Notice& notice, std::string_view text) {
  switch (notice.kind) {
    case Notice::Kind::kAnnounced:
      announcements_[{peer, notice.tag}].push_back({notice.id, notice.bytes});
      Match({peer, notice.tag});
      return;
    case Notice::Kind::kAccepted: {
      const auto send = announced_.extract(PeerAndNumber{peer, notice.id});
      const Place fixed = order_.Fix({notice.time, rank()}, send.mapped());
      control_.Send(peer, {Notice::Kind::kFixed, 0, notice.id, 0, fixed.time});
      return;
    }
    case Notice::Kind::kFixed: {
      const auto receive = accepted_.extract(PeerAndNumber{peer, notice.id});
      order_.Settle(receive.mapped()->proposed, {notice.time, peer});
      return;
    }
    case Notice::Kind::kCount:
      return TakeCount(peer, notice);
    case Notice::Kind::kGaveUp:
      Fail(Error(FailureKind::kComm, RankName(peer) + " gave up: " + std::string(text)), false);
      throw Error(*failure_);
  }
}

void NcclCommunicator::TakeCount(int peer, const Notice& notice) {
  const bool posted = notice.id < order_.appended();
  if (posted && !counts_.contains(notice.id)) {
    SPARFUSE_THROW(kComm, "nccl: " + RankName(peer) +
                              " gathers where this rank reduces: collectives must be posted in "
                              "one order");
  }
  Counts& counts = CountsOf(notice.id);
  counts[static_cast<std::size_t>(peer)] = notice.bytes;
  if (posted && AllKnown(counts)) order_.MarkReady(notice.id);
}

// Pairs announcements with receives, both in order.
void NcclCommunicator::Match(PeerAndTag key) {
  const auto receives = receives_.find(key);
  const auto announcements = announcements_.find(key);
  if (receives == receives_.end() || announcements == announcements_.end()) return;
  while (!receives->second.empty() && !announcements->second.empty()) {
    Operation& receive = *receives->second.front();
    const Announced message = announcements->second.front();
    receives->second.pop_front();
    announcements->second.pop_front();
    if (message.bytes > receive.bytes) {
      SPARFUSE_THROW(kComm, "message of " + std::to_string(message.bytes) + " bytes from " +
                                RankName(key.first) + ": expected at most " +
                                std::to_string(receive.bytes));
    }
    receive.bytes = message.bytes;
    receive.number = message.number;
    if (message.bytes == 0) {
      Finish(receive);
      continue;
    }
    receive.proposed = order_.Propose(key.first, &receive);
    accepted_[{key.first, message.number}] = &receive;
    control_.Send(key.first,
                  {Notice::Kind::kAccepted, 0, message.number, 0, receive.proposed.time});
  }
  if (receives->second.empty()) receives_.erase(receives);
  if (announcements->second.empty()) announcements_.erase(announcements);
}

void NcclCommunicator::FinishLaunches() {
  while (!running_.empty() && running_.front().end.Done()) {
    for (Operation* operation : running_.front().operations) Finish(*operation);
    spare_events_.push_back(std::move(running_.front().end));
    running_.pop_front();
    --session_->in_flight;
  }
}

void NcclCommunicator::Finish(Operation& operation) {
  std::erase(unstarted_, &operation);
  operation.complete = true;
  session_->last_change = MonotonicNanoseconds();
  if (operation.kind == Operation::Kind::kReceive) {
    Traffic& traffic = TrafficWith(operation.peer);
    ++traffic.messages_received;
    traffic.bytes_received += operation.bytes;
  }
}

// False when nothing can start now. Two ranks need not have their messages in the same groups,
// which NCCL leaves undefined in general (NVIDIA/nccl issue 1279): what is a group here must run as
// it would apart.
bool NcclCommunicator::LaunchNext() {
  std::vector<Operation*> messages;
  const auto has = [&](Way way) {
    return std::ranges::any_of(messages, [&](const Operation* message) {
      return Way(message->peer, message->kind) == way;
    });
  };
  while (Operation* const* next = order_.Next()) {
    Operation& operation = **next;
    if (operation.peer < 0) {
      if (!messages.empty()) break;
      order_.Pop();
      if (LaunchCollective(operation)) return true;
      Finish(operation);  // there was nothing to move
      continue;
    }
    // NCCL connects before the first message of a way, and all ways of a group together: each ends
    // only when the peers of all have come. Messages of one way run one after another.
    const Way way(operation.peer, operation.kind);
    const bool first = !linked_.contains(way);
    if (!messages.empty() && (first || has(way) || messages.size() == kLargestGroup)) break;
    messages.push_back(&operation);
    order_.Pop();
    if (first) {
      linked_.insert(way);
      break;
    }
  }
  if (messages.empty()) return false;
  LaunchMessages(std::move(messages));
  return true;
}

void NcclCommunicator::LaunchMessages(std::vector<Operation*> messages) {
  void* const stream = stream_.view().native;
  handle_.Group("NCCL's messages", [&] {
    for (const Operation* message : messages) {
      if (message->kind == Operation::Kind::kSend) {
        handle_.Check(
            api_.send(message->data, message->bytes, message->peer, handle_.comm(), stream),
            "ncclSend");
      } else {
        handle_.Check(
            api_.receive(message->data, message->bytes, message->peer, handle_.comm(), stream),
            "ncclRecv");
      }
    }
  });
  Issued(std::move(messages));
}

bool NcclCommunicator::LaunchCollective(Operation& collective) {
  if (collective.kind == Operation::Kind::kAllGather) {
    LaunchAllGather(collective);
    if (collective.stride == 0) return false;
  } else {
    if (collective.bytes == 0) return false;
    handle_.Check(api_.all_reduce_sum(reinterpret_cast<float*>(collective.data),
                                      collective.bytes / sizeof(float), handle_.comm(),
                                      stream_.view().native),
                  "ncclAllReduce");
  }
  Issued({&collective});
  return true;
}

void NcclCommunicator::LaunchAllGather(Operation& gather) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto own = static_cast<std::size_t>(rank());
  std::vector<std::uint64_t> sizes;
  const auto counts = counts_.extract(gather.number);
  for (const auto& count : counts.mapped()) sizes.push_back(*count);
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  if (*largest > gather.capacity) {
    SPARFUSE_THROW(kComm, "all-gather: payload of " + std::to_string(*largest) + " bytes from " +
                              RankName(static_cast<int>(largest - sizes.begin())) +
                              ": expected at most " + std::to_string(gather.capacity));
  }
  // Where payloads lie depends on nothing but the sizes, so that padded blocks meet.
  const std::size_t padded = (*largest + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t stride = std::min(padded, gather.capacity);
  gather.by_rank->resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    (*gather.by_rank)[r] = r == own ? std::span<const std::byte>(gather.data, gather.bytes)
                                    : gather.gathered.subspan(r * stride, sizes[r]);
  }
  if (ranks == 1 || *largest == 0) return;
  gather.stride = stride;

  const Stream stream = stream_.view();
  if (CheaperAllGather(sizes, topology(), setup_.links) == AllGatherAlgorithm::kPadded) {
    std::byte* const place = gather.gathered.data() + own * stride;
    if (gather.bytes > 0) gpu::CopyAsync(stream, place, gather.data, gather.bytes);
    handle_.Check(
        api_.all_gather(place, gather.gathered.data(), stride, handle_.comm(), stream.native),
        "ncclAllGather");
    return;
  }
  handle_.Group("NCCL's all-gather", [&] {
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own) continue;
      const int peer = static_cast<int>(r);
      if (gather.bytes > 0) {
        handle_.Check(api_.send(gather.data, gather.bytes, peer, handle_.comm(), stream.native),
                      "ncclSend");
      }
      if (sizes[r] > 0) {
        handle_.Check(api_.receive(gather.gathered.data() + r * stride, sizes[r], peer,
                                   handle_.comm(), stream.native),
                      "ncclRecv");
      }
    }
  });
}

// NCCL has got it.
void NcclCommunicator::Issued(std::vector<Operation*> operations) {
  issuing_ = std::move(operations);
  ++session_->in_flight;
  session_->last_change = MonotonicNanoseconds();
  if (handle_.Settled()) Launched(std::exchange(issuing_, {}));
}

// NCCL has given it to the stream.
void NcclCommunicator::Launched(std::vector<Operation*> operations) {
  for (Operation* operation : operations) std::erase(unstarted_, operation);
  if (spare_events_.empty()) spare_events_.emplace_back(setup_.device);
  running_.push_back({std::move(operations), std::move(spare_events_.back())});
  spare_events_.pop_back();
  running_.back().end.Record(stream_.view());
}

}  // namespace sparfuse
