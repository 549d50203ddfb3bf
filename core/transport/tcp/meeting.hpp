// Gives every pair of ranks a connection, and rejects connections from outside.
#pragma once

#include <chrono>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/transport/tcp/socket.hpp"

namespace sparfuse {

// Returns [ranks] connections by rank, none to this rank. The higher rank of a pair connects to the
// lower one and sends the lower one's token; the lower one answers with the token of the higher.
// Until then the lower one watches the higher one's port, to name a rank that is lost before it
// connects.
// Throws as MakeTcpWorld does.
std::vector<Socket> MeetRanks(Socket listener, std::span<const std::string> addresses, int rank,
                              std::chrono::milliseconds deadline, const std::stop_token& stop);

}  // namespace sparfuse
