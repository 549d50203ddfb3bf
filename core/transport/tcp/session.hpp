// Moves frames over the connections of a rank. All its communicators share one session.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/tcp/socket.hpp"
#include "core/transport/tcp/tcp.hpp"

namespace sparfuse {

// A started send or receive. Its request and the session share it: either may release it first.
struct TcpOperation {
  int peer = 0;               // in the world
  std::byte* data = nullptr;  // a send only reads it
  std::size_t size = 0;       // of the message, or room for it
  std::size_t moved = 0;      // bytes of the message, once known
  bool done = false;
  bool too_large = false;       // the message, for its buffer: it is read and dropped
  bool abandoned = false;       // its buffer is gone
  std::vector<std::byte> kept;  // the bytes that an abandoned send still has to write
};
using TcpOperationPointer = std::shared_ptr<TcpOperation>;

// One thread at a time uses a session, except for Wake.
class TcpSession {
 public:
  // connections: [ranks], by rank, none for this rank. failure: as in TcpSignals.
  TcpSession(std::vector<Socket> connections, int rank,
             std::shared_ptr<const TcpFailure> failure = {})
      : rank_(rank),
        peers_(connections.size()),
        failure_(std::move(failure)),
        staging_(kStagingBytes) {
    epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
    wake_ = Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!epoll_ || !wake_) SPARFUSE_THROW(kComm, "epoll: ", ErrorText(errno));
    epoll_.KeepFromChildren();
    wake_.KeepFromChildren();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = kWakeEvent;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (!connections[peer]) continue;
      peers_[peer].socket = std::move(connections[peer]);
      peers_[peer].socket.KeepFromChildren();
      event.data.u32 = static_cast<std::uint32_t>(peer);
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peers_[peer].socket.get(), &event);
    }
  }

  // Says goodbye: only requests of others with this rank fail, unless it failed or lost a rank.
  ~TcpSession() {
    int blamed = lost_;
    auto why = std::make_shared<TcpOperation>();
    std::string text = why_lost_;
    if (blamed < 0 && failure_ && failure_->known) {
      blamed = left_ >= 0 ? left_ : rank_;
      if (blamed == rank_) text = failure_->why.substr(0, kLongestWhy);
    }
    why->size = text.size();
    why->data = reinterpret_cast<std::byte*>(text.data());
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      Peer& peer = peers_[r];
      if (!peer.socket || peer.gone) continue;
      Queue(static_cast<int>(r),
            {{0, text.size(), static_cast<std::uint32_t>(blamed + 1), 0, FrameKind::kGoodbye},
             why,
             0});
      if (peer.gone) continue;
      ::shutdown(peer.socket.get(), SHUT_WR);
      // The kernel would answer unread bytes by dropping the data still in transit.
      while (::recv(peer.socket.get(), staging_.data(), staging_.size(), MSG_DONTWAIT) > 0) {
      }
    }
  }

  TcpSession(const TcpSession&) = delete;
  TcpSession& operator=(const TcpSession&) = delete;

  TcpOperationPointer Send(int peer, std::uint64_t communicator, int tag,
                           std::span<const std::byte> data) {
    auto operation = std::make_shared<TcpOperation>();
    operation->peer = peer;
    operation->data = const_cast<std::byte*>(data.data());
    operation->size = operation->moved = data.size();
    const auto key = static_cast<std::uint16_t>(tag);
    if (peer == rank_) {
      SendToSelf(communicator, key, *operation);
      return operation;
    }
    Peer& to = PeerOf(peer);
    if (to.gone) return operation;
    Frame frame{communicator, data.size(), 0, key, FrameKind::kWhole};
    if (data.size() <= kLargestWhole) {
      Queue(peer, {frame, operation, 0});
      return operation;
    }
    frame.kind = FrameKind::kAnnounce;
    frame.number = to.next_number++;
    to.announced.emplace(frame.number, operation);
    Queue(peer, {frame, nullptr, 0});
    return operation;
  }

  TcpOperationPointer Receive(int peer, std::uint64_t communicator, int tag,
                              std::span<std::byte> buffer) {
    auto operation = std::make_shared<TcpOperation>();
    operation->peer = peer;
    operation->data = buffer.data();
    operation->size = buffer.size();
    Peer& from = PeerOf(peer);
    const Key key{communicator, static_cast<std::uint16_t>(tag)};
    const auto found = from.queues.find(key);
    if (found == from.queues.end() || found->second.early.empty()) {
      if (!from.gone) from.queues[key].receives.push_back(operation);
      return operation;
    }
    const std::shared_ptr<Early> early = std::move(found->second.early.front());
    found->second.early.pop_front();
    if (found->second.early.empty()) from.queues.erase(found);
    if (early->announced) {
      Grant(peer, early->number, early->size, operation);
    } else if (early->complete) {
      Deliver(*operation, early->data);
    } else {
      early->receive = operation;
    }
    return operation;
  }

  // Detaches the buffer of an unfinished operation from the session.
  void Abandon(TcpOperation& operation) {
    operation.abandoned = true;
    Peer& peer = PeerOf(operation.peer);
    std::erase_if(peer.announced,
                  [&](const auto& entry) { return entry.second.get() == &operation; });
    if (peer.out.empty() || peer.out.front().body.get() != &operation ||
        peer.out.front().written == 0) {
      return;
    }
    operation.kept.assign(operation.data, operation.data + operation.size);
    operation.data = operation.kept.data();
  }

  // Moves all bytes that sockets accept or have now; polls at most every few microseconds.
  void Progress() {
    if (std::chrono::steady_clock::now() - polled_ >= kPollEvery) Poll({});
  }

  // As Communicator::Idle.
  void Idle(std::chrono::nanoseconds limit) {
    if (!Poll(limit)) return;
    std::uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t read = ::read(wake_.get(), &wakes, sizeof wakes);
  }

  void Wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }

  // The lost rank because of which unfinished operations with `peer` never complete; -1: none.
  int LostFor(int peer) const {
    return lost_ < 0 && peers_[static_cast<std::size_t>(peer)].gone ? peer : lost_;
  }

  // ": WHY" if the lost rank failed and said why, else empty.
  std::string WhyLost(int lost) const {
    return lost != lost_ || why_lost_.empty() ? "" : ": " + why_lost_;
  }

 private:
  // A longer message waits for its receive, or a rank that is ahead would fill the memory of the
  // others. For a shorter one the wait would cost more than the copy.
  static constexpr std::size_t kLargestWhole = 256 << 10;
  static constexpr std::size_t kStagingBytes = 64 << 10;
  // A body with this much left is read to its destination directly, not staged.
  static constexpr std::size_t kDirectBytes = 4 << 10;
  // Messages are given to the kernel as packets of this size, which it does not join. A link that
  // is shaped by a token bucket cuts larger packets into frames in software, which for a model's
  // whole gradient takes as long as the link itself.
  static constexpr std::size_t kPacketBytes = 16 << 10;
  // A message larger than this is given whole if the connection has delivered so many bytes a
  // second: on a fast link, calls and packets cost more.
  static constexpr std::size_t kInPackets = 1 << 20;
  static constexpr double kFastBytesPerSecond = 500e6;
  // Of a message, or its end: half a millisecond at 1 Gbit/s.
  static constexpr std::size_t kWakeBytes = 64 << 10;
  static constexpr int kReadsAtOnce = 16;  // of one peer, before others get their turn
  static constexpr std::chrono::microseconds kPollEvery{2};
  static constexpr std::size_t kLongestWhy = 1000;
  static constexpr std::uint32_t kWakeEvent = ~0U;

  enum class FrameKind : std::uint16_t {
    kWhole,     // a message; its bytes follow
    kAnnounce,  // `number`: a message that waits for its receive
    kGrant,     // of message `number`: send it
    kBody,      // the bytes of message `number`
    // number - 1: the rank because of which the sender leaves, or -1; why that rank failed follows
    kGoodbye
  };
  struct Frame {
    std::uint64_t communicator = 0;
    std::uint64_t bytes = 0;
    std::uint32_t number = 0;
    std::uint16_t tag = 0;
    FrameKind kind = FrameKind::kWhole;
  };
  static_assert(sizeof(Frame) == 24);

  // Messages of equal communicator and tag are received in the order in which they were sent.
  using Key = std::pair<std::uint64_t, std::uint16_t>;
  // A message that arrived, or was announced, before its receive was posted.
  struct Early {
    std::size_t size = 0;
    std::uint32_t number = 0;
    bool announced = false;
    bool complete = false;
    std::vector<std::byte> data;
    TcpOperationPointer receive;  // posted while the message was arriving
  };
  struct Queues {  // at most one queue has entries
    std::deque<TcpOperationPointer> receives;
    std::deque<std::shared_ptr<Early>> early;
  };
  struct Outgoing {
    Frame frame;
    TcpOperationPointer body;  // null: the frame alone
    std::size_t written = 0;
    bool whole = false;  // not in packets
  };
  struct Peer {
    Socket socket;
    bool gone = false;
    bool asked_for_room = false;  // epoll reports when the socket accepts bytes again
    std::deque<Outgoing> out;
    // State of the incoming frame.
    std::array<std::byte, sizeof(Frame)> header;
    std::size_t header_bytes = 0;
    std::size_t body_left = 0;
    int wakes_at = 1;                   // bytes that epoll waits for: SO_RCVLOWAT
    TcpOperationPointer into;           // destination of its body,
    std::shared_ptr<Early> into_early;  // or this; both null: dropped
    int leaves_because_of = -1;         // the rank that its goodbye names
    bool leaves = false;                // the body is that of its goodbye
    std::map<Key, Queues> queues;
    std::map<std::uint32_t, TcpOperationPointer> announced;  // sends that wait for a grant
    std::map<std::uint32_t, TcpOperationPointer> granted;    // receives whose body will come
    std::uint32_t next_number = 0;
  };

  static void Deliver(TcpOperation& receive, std::span<const std::byte> message) {
    receive.moved = message.size();
    receive.too_large = message.size() > receive.size;
    if (!receive.too_large && !message.empty() && !receive.abandoned)
      std::memcpy(receive.data, message.data(), message.size());
    receive.done = true;
  }

  Peer& PeerOf(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  TcpOperationPointer TakeReceive(Peer& peer, Key key) {
    const auto found = peer.queues.find(key);
    if (found == peer.queues.end()) return nullptr;
    TcpOperationPointer taken;
    auto& waiting = found->second.receives;
    while (!waiting.empty() && taken == nullptr) {
      if (!waiting.front()->abandoned) taken = std::move(waiting.front());
      waiting.pop_front();
    }
    if (waiting.empty() && found->second.early.empty()) peer.queues.erase(found);
    return taken;
  }

  void SendToSelf(std::uint64_t communicator, std::uint16_t tag, TcpOperation& send) {
    const std::span<const std::byte> message(send.data, send.size);
    send.done = true;
    Peer& self = PeerOf(rank_);
    if (const auto receive = TakeReceive(self, {communicator, tag})) {
      Deliver(*receive, message);
      return;
    }
    auto early = std::make_shared<Early>();
    early->size = message.size();
    early->data.assign(message.begin(), message.end());
    early->complete = true;
    self.queues[{communicator, tag}].early.push_back(std::move(early));
  }

  void Grant(int rank, std::uint32_t number, std::size_t bytes,
             const TcpOperationPointer& receive) {
    receive->moved = bytes;
    receive->too_large = bytes > receive->size;
    PeerOf(rank).granted.emplace(number, receive);
    Queue(rank, {{0, 0, number, 0, FrameKind::kGrant}, nullptr, 0});
  }

  void Queue(int rank, Outgoing outgoing) {
    Peer& peer = PeerOf(rank);
    peer.out.push_back(std::move(outgoing));
    if (peer.out.size() == 1) Write(rank);
  }

  void Write(int rank) {
    Peer& peer = PeerOf(rank);
    while (!peer.out.empty() && !peer.gone) {
      Outgoing& out = peer.out.front();
      TcpOperation* const body = out.body.get();
      if (body != nullptr && body->abandoned && out.written == 0) {
        peer.out.pop_front();
        continue;
      }
      const std::size_t body_size = body == nullptr ? 0 : body->size;
      const std::size_t in_body = out.written < sizeof(Frame) ? 0 : out.written - sizeof(Frame);
      if (out.written == 0) {
        out.whole =
            body_size > kInPackets && DeliveredBytesPerSecond(peer.socket) > kFastBytesPerSecond;
      }
      std::array<iovec, 2> parts{};
      std::size_t count = 0;
      if (out.written < sizeof(Frame)) {
        parts[count++] = {reinterpret_cast<std::byte*>(&out.frame) + out.written,
                          sizeof(Frame) - out.written};
      }
      if (in_body < body_size)
        parts[count++] = {body->data + in_body,
                          std::min(body_size - in_body, out.whole ? body_size : kPacketBytes)};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (out.whole ? 0 : MSG_EOR);
      const ssize_t sent = ::sendmsg(peer.socket.get(), &message, flags);
      if (sent < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
          return AskForRoom(rank, true);
        return Lose(rank, false);
      }
      out.written += static_cast<std::size_t>(sent);
      if (out.written < sizeof(Frame) + body_size) continue;
      if (body != nullptr) body->done = true;
      peer.out.pop_front();
    }
    AskForRoom(rank, false);
  }

  void AskForRoom(int rank, bool ask) {
    Peer& peer = PeerOf(rank);
    if (peer.asked_for_room == ask || peer.gone) return;
    peer.asked_for_room = ask;
    epoll_event event{};
    event.events = ask ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(rank);
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), &event);
  }

  void Read(int rank) {
    ReadNow(rank);
    AwaitMore(PeerOf(rank));
  }

  void ReadNow(int rank) {
    Peer& peer = PeerOf(rank);
    for (int reads = 0; reads < kReadsAtOnce && !peer.gone; ++reads) {
      std::array<iovec, 2> parts{};
      std::size_t direct = 0;
      std::size_t count = 0;
      if (peer.body_left >= kDirectBytes) {
        std::byte* at = nullptr;
        if (peer.into_early) {
          at = peer.into_early->data.data() + (peer.into_early->size - peer.body_left);
        } else if (peer.into && !peer.into->abandoned && !peer.into->too_large) {
          at = peer.into->data + (peer.into->moved - peer.body_left);
        }
        if (at != nullptr) parts[count++] = {at, direct = peer.body_left};
      }
      parts[count++] = {staging_.data(), staging_.size()};
      const ssize_t got = ::readv(peer.socket.get(), parts.data(), static_cast<int>(count));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0) return Lose(rank, false);
      const auto bytes = static_cast<std::size_t>(got);
      const std::size_t placed = std::min(bytes, direct);
      if (placed > 0) {
        peer.body_left -= placed;
        if (peer.body_left == 0) EndFrame(rank);
      }
      Take(rank, std::span<const std::byte>(staging_).first(bytes - placed));
      if (bytes < direct + staging_.size()) return;  // nothing more is readable
    }
  }

  // A slow link delivers a message in packets. A thread that wakes for each of them takes as much
  // time from the computation as the whole message lasts on the link.
  void AwaitMore(Peer& peer) {
    if (peer.gone) return;
    const int bytes = static_cast<int>(std::clamp<std::size_t>(peer.body_left, 1, kWakeBytes));
    if (bytes == peer.wakes_at) return;
    peer.wakes_at = bytes;
    // The kernel reports fewer bytes if they end the connection.
    setsockopt(peer.socket.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }

  // Consumes all bytes.
  void Take(int rank, std::span<const std::byte> bytes) {
    Peer& peer = PeerOf(rank);
    while (!bytes.empty() && !peer.gone) {
      if (peer.body_left == 0) {
        const std::size_t more = std::min(sizeof(Frame) - peer.header_bytes, bytes.size());
        std::memcpy(peer.header.data() + peer.header_bytes, bytes.data(), more);
        peer.header_bytes += more;
        bytes = bytes.subspan(more);
        if (peer.header_bytes == sizeof(Frame)) {
          peer.header_bytes = 0;
          BeginFrame(rank);
        }
        continue;
      }
      const std::size_t more = std::min(peer.body_left, bytes.size());
      if (peer.into_early) {
        const std::size_t at = peer.into_early->size - peer.body_left;
        std::memcpy(peer.into_early->data.data() + at, bytes.data(), more);
      } else if (peer.into && !peer.into->abandoned && !peer.into->too_large) {
        std::memcpy(peer.into->data + (peer.into->moved - peer.body_left), bytes.data(), more);
      }
      bytes = bytes.subspan(more);
      peer.body_left -= more;
      if (peer.body_left == 0) EndFrame(rank);
    }
  }

  // Finds the place for the body of a frame, and acts on a frame without body.
  void BeginFrame(int rank) {
    Peer& peer = PeerOf(rank);
    Frame frame;
    std::memcpy(&frame, peer.header.data(), sizeof frame);
    const Key key{frame.communicator, frame.tag};
    switch (frame.kind) {
      case FrameKind::kWhole:
        peer.into = TakeReceive(peer, key);
        if (peer.into) {
          peer.into->moved = frame.bytes;
          peer.into->too_large = frame.bytes > peer.into->size;
        } else {
          peer.into_early = std::make_shared<Early>();
          peer.into_early->size = frame.bytes;
          peer.into_early->data.resize(frame.bytes);
          peer.queues[key].early.push_back(peer.into_early);
        }
        break;
      case FrameKind::kAnnounce:
        if (const auto receive = TakeReceive(peer, key))
          return Grant(rank, frame.number, frame.bytes, receive);
        peer.queues[key].early.push_back(
            std::make_shared<Early>(Early{frame.bytes, frame.number, true, false, {}, nullptr}));
        return;
      case FrameKind::kGrant:
        if (auto send = peer.announced.extract(frame.number)) {
          const std::uint64_t bytes = send.mapped()->size;
          Queue(rank, {{0, bytes, frame.number, 0, FrameKind::kBody}, std::move(send.mapped()), 0});
        }
        return;
      case FrameKind::kBody:
        if (auto receive = peer.granted.extract(frame.number))
          peer.into = std::move(receive.mapped());
        break;
      case FrameKind::kGoodbye:
        peer.leaves_because_of = static_cast<int>(frame.number) - 1;
        if (frame.bytes == 0 || frame.bytes > kLongestWhy) return TakeGoodbye(rank, {});
        peer.leaves = true;
        peer.into_early = std::make_shared<Early>();
        peer.into_early->size = frame.bytes;
        peer.into_early->data.resize(frame.bytes);
        break;
    }
    peer.body_left = frame.bytes;
    if (peer.body_left == 0) EndFrame(rank);
  }

  void EndFrame(int rank) {
    Peer& peer = PeerOf(rank);
    if (peer.leaves) {
      const std::vector<std::byte>& text = peer.into_early->data;
      return TakeGoodbye(rank, {reinterpret_cast<const char*>(text.data()), text.size()});
    }
    if (peer.into) peer.into->done = true;
    if (peer.into_early) {
      peer.into_early->complete = true;
      if (peer.into_early->receive) Deliver(*peer.into_early->receive, peer.into_early->data);
    }
    peer.into.reset();
    peer.into_early.reset();
  }

  void TakeGoodbye(int rank, std::string why) {
    if (const int blamed = PeerOf(rank).leaves_because_of; blamed >= 0 && lost_ < 0) {
      lost_ = blamed;
      why_lost_ = std::move(why);
    }
    Lose(rank, true);
  }

  void Lose(int rank, bool said_goodbye) {
    Peer& peer = PeerOf(rank);
    if (peer.gone) return;
    peer.gone = true;
    if (!said_goodbye && lost_ < 0) lost_ = rank;
    if (said_goodbye && left_ < 0) left_ = rank;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
    peer.out.clear();
    for (auto& [key, queues] : peer.queues) queues.receives.clear();
    std::erase_if(peer.queues, [](const auto& entry) { return entry.second.early.empty(); });
  }

  bool Poll(std::chrono::nanoseconds limit) {
    std::array<epoll_event, 16> events;
    const timespec wait{static_cast<time_t>(limit.count() / 1'000'000'000),
                        static_cast<long>(limit.count() % 1'000'000'000)};
    const int count =
        epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &wait, nullptr);
    bool woken = false;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u32 == kWakeEvent) {
        woken = true;
        continue;
      }
      const int rank = static_cast<int>(event.data.u32);
      if ((event.events & EPOLLOUT) != 0) Write(rank);
      if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read(rank);
    }
    polled_ = std::chrono::steady_clock::now();
    return woken;
  }

  int rank_;
  std::vector<Peer> peers_;
  Socket epoll_;
  Socket wake_;
  const std::shared_ptr<const TcpFailure> failure_;
  int lost_ = -1;  // the first rank lost without goodbye, also if another rank reported it
  std::string why_lost_;
  int left_ = -1;  // the first rank that said goodbye
  std::vector<std::byte> staging_;
  std::chrono::steady_clock::time_point polled_{};
};

}  // namespace sparfuse
