// Makes transport `tcp`: ranks are processes, or threads, that reach one another over sockets; host
// memory. It needs no library and no launcher.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "core/transport/communicator.hpp"
#include "core/transport/tcp/socket.hpp"

namespace sparfuse {

// A port at which the other ranks of one world find this rank, before they know one another.
class TcpListener {
 public:
  // Listens on a free port.
  //
  //   interface  the name of a network interface of this host, or one of its addresses. Empty: the
  //              interface that reaches `toward`.
  //   toward     a host that all ranks reach, say the one that they were told to meet at. Empty, or
  //              not to be found: the loopback interface.
  //
  // Throws Error{kConfig} where this host has no such interface, naming those that it has.
  explicit TcpListener(const std::string& interface = "", const std::string& toward = "");

  // "HOST PORT TOKEN", for every rank of the world and for nobody else: who does not show the token
  // is turned away.
  const std::string& address() const noexcept { return address_; }

 private:
  friend std::unique_ptr<Communicator> MakeTcpWorld(TcpListener, std::span<const std::string>, int,
                                                    int, std::chrono::milliseconds);
  Socket socket_;
  std::string address_;
};

// The world of this rank. Blocks until every pair of ranks has a connection, and ends `listener`.
//
//   addresses  [ranks] of all listeners, by rank; the caller has exchanged them.
//   rank       of this listener's owner.
//
// Throws Error{kTimeout} past the deadline, naming the ranks that did not come and the addresses of
// both sides; Error{kComm} where there is no route to one, likewise; Error{kConfig} for addresses
// that no TcpListener made.
//
// A send is complete when the kernel has the message. Messages above 256 KiB wait in the sender's
// memory until the receive is posted. A rank that dies fails whatever others wait for, of any rank,
// with Error{kComm} "rank R is lost"; one that destroys its communicators only fails what is
// pending with it. Requests must not outlive their communicator.
std::unique_ptr<Communicator> MakeTcpWorld(TcpListener listener,
                                           std::span<const std::string> addresses, int rank,
                                           int ranks_per_node, std::chrono::milliseconds deadline);

}  // namespace sparfuse
