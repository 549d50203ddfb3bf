// Finds out which rank a stalled exchange is really waiting for.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// Pings all ranks and answers their pings, on a communicator of its own that spans the world. An
// answer tells which rank the answering one waits for itself, so that a chain of waiting ranks can
// be followed to its end.
class Liveness {
 public:
  // What a rank may wait for instead of a rank.
  static constexpr int kNothing = -1;
  static constexpr int kNativeCollective = -2;

  explicit Liveness(std::unique_ptr<Communicator> communicator);

  // Answers pings and takes in answers; to be called often. Never throws: a peer that the transport
  // lost counts as silent.
  void Service(int waiting_for);
  void PingAll(int waiting_for);

  // Says who holds up a rank that waits for `waiting_for` and sent its pings at `pinged`: the ranks
  // not heard of since ("rank 2 does not answer"), or else the last one of the chain of waiting
  // ranks ("rank 2 answers but did not send").
  std::string Describe(int waiting_for, std::chrono::steady_clock::time_point pinged) const;

 private:
  struct Message {
    std::int32_t wants_answer = 0;
    std::int32_t waiting_for = kNothing;
  };
  struct Peer {
    Message inbox;
    std::unique_ptr<Request> receive;  // null for this rank, and once the peer is lost
    std::chrono::steady_clock::time_point last_heard;
    int waiting_for = kNothing;
  };
  struct Outgoing {
    Message message;
    std::unique_ptr<Request> send;
  };
  void Send(int peer, Message message);

  std::unique_ptr<Communicator> communicator_;
  std::vector<Peer> peers_;
  std::list<Outgoing> outgoing_;
};

}  // namespace sparfuse
