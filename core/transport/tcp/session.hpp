// Moves frames over the connections of a rank. All its communicators share one session.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
             std::shared_ptr<const TcpFailure> failure = {});
  // Says goodbye: only requests of others with this rank fail, unless it failed or lost a rank.
  ~TcpSession();
  TcpSession(const TcpSession&) = delete;
  TcpSession& operator=(const TcpSession&) = delete;

  TcpOperationPointer Send(int peer, std::uint64_t communicator, int tag,
                           std::span<const std::byte> data);
  TcpOperationPointer Receive(int peer, std::uint64_t communicator, int tag,
                              std::span<std::byte> buffer);
  // Detaches the buffer of an unfinished operation from the session.
  void Abandon(TcpOperation& operation);

  // Moves all bytes that sockets accept or have now; polls at most every few microseconds.
  void Progress();
  // As Communicator::Idle.
  void Idle(std::chrono::nanoseconds limit);
  void Wake() noexcept;

  // The lost rank because of which unfinished operations with `peer` never complete; -1: none.
  int LostFor(int peer) const;
  // ": WHY" if the lost rank failed and said why, else empty.
  std::string WhyLost(int lost) const;

 private:
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

  Peer& PeerOf(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  TcpOperationPointer TakeReceive(Peer& peer, Key key);
  void SendToSelf(std::uint64_t communicator, std::uint16_t tag, TcpOperation& send);
  void Grant(int rank, std::uint32_t number, std::size_t bytes, const TcpOperationPointer& receive);

  void Queue(int rank, Outgoing outgoing);
  void Write(int rank);
  void AskForRoom(int rank, bool ask);
  void Read(int rank);
  void ReadNow(int rank);
  void AwaitMore(Peer& peer);
  // Consumes all bytes.
  void Take(int rank, std::span<const std::byte> bytes);
  void BeginFrame(int rank);
  void EndFrame(int rank);
  void TakeGoodbye(int rank, std::string why);
  void Lose(int rank, bool said_goodbye);
  bool Poll(std::chrono::nanoseconds limit);

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
