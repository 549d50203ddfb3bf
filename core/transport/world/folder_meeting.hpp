// Makes a world over TCP from ranks that share a folder and nothing else.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "core/transport/communicator.hpp"
#include "core/transport/world/world_check.hpp"

namespace sparfuse {

// Each rank writes its host's name and its address to a file in `folder`, reads the others' files,
// and removes its own when all are connected. `interface`: as TcpListener's; "": the interface that
// reaches the other hosts, on one host the loopback interface. Throws Error{kTimeout} past the
// deadline naming the ranks without an address, and throws as MakeTcpWorld does.
std::unique_ptr<Communicator> MeetInFolder(const std::filesystem::path& folder,
                                           const ExpectedWorld& world, int rank, int ranks_per_node,
                                           const std::string& interface,
                                           std::chrono::milliseconds deadline);

}  // namespace sparfuse
