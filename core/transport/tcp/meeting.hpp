// Gives every pair of ranks a connection, and turns away who does not belong to them.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "core/transport/tcp/socket.hpp"

namespace sparfuse {

// What TcpListener::address() says.
struct TcpAddress {
  HostAddress host;
  std::string token;
};
// Throws Error{kConfig}.
TcpAddress ParseTcpAddress(const std::string& text);

// [ranks] connections by rank, none to itself. The higher rank of a pair connects to the other one
// and shows its token, which answers with the first one's. Throws as MakeTcpWorld does.
std::vector<Socket> MeetRanks(Socket listener, std::span<const std::string> addresses, int rank,
                              std::chrono::milliseconds deadline);

}  // namespace sparfuse
