// Makes transport `tcp`: ranks are processes, or threads, that communicate over sockets, in host
// memory. It needs no library and no launcher.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "core/transport/communicator.hpp"
#include "core/transport/tcp/socket.hpp"

namespace sparfuse {

// A failure of a rank, which its owner writes before the rank's communicators end.
struct TcpFailure {
  std::string why;  // one line, written before `known`
  std::atomic<bool> known{false};
};

// What the owner of a rank tells its world.
struct TcpSignals {
  // Ends the wait for the other ranks within a second; they then take this rank for lost.
  std::stop_token stop = {};
  // If it is known at the end, this rank ends because of a failure. Others then fail and name the
  // rank at fault: one that this rank lost, else this rank, and why. Null: there is none.
  std::shared_ptr<const TcpFailure> failure = {};
};

// A port at which the other ranks of one world find this rank, before they know one another.
class TcpListener {
 public:
  // Listens on a free port.
  //
  //   interface  the name of a network interface of this host, or one of its addresses. Empty: the
  //              interface that reaches `toward`.
  //   toward     a host that all ranks reach, say their meeting point. If it is empty or cannot be
  //              found: the loopback interface.
  //
  // Throws Error{kConfig} if this host has no such interface, naming the interfaces that it has.
  explicit TcpListener(const std::string& interface = "", const std::string& toward = "");

  // "HOST PORT TOKEN", for the ranks of the world alone: the listener rejects connections without
  // the token.
  const std::string& address() const noexcept { return address_; }

 private:
  friend std::unique_ptr<Communicator> MakeTcpWorld(TcpListener, std::span<const std::string>, int,
                                                    int, std::chrono::milliseconds, TcpSignals);
  Socket socket_;
  std::string address_;
};

// Makes the world of this rank. Blocks until every pair of ranks has a connection, and ends
// `listener`.
//
//   addresses  [ranks] of all listeners, by rank; the caller has exchanged them.
//   rank       of this listener's owner.
//
// Throws Error{kTimeout} past the deadline, naming the ranks that did not come and the addresses of
// both sides. Throws Error{kComm}, with the same names, if there is no route to a rank, and soon
// after a rank ends before it has connected, and after a stop. Throws Error{kConfig} for addresses
// that no TcpListener made.
//
// A send is complete when the kernel has the message. Messages above 256 KiB wait in the sender's
// memory until the receive is posted. If a rank dies, all pending requests of the others, with any
// rank, fail with Error{kComm} "rank R is lost", ": WHY" if it said why. If a rank destroys its
// communicators, only requests with that rank fail, unless it says that it has failed. Requests
// must not outlive their communicator.
std::unique_ptr<Communicator> MakeTcpWorld(TcpListener listener,
                                           std::span<const std::string> addresses, int rank,
                                           int ranks_per_node, std::chrono::milliseconds deadline,
                                           TcpSignals signals = {});

}  // namespace sparfuse
