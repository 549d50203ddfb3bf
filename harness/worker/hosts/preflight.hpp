// The rank of a launch that trains nothing: reports its host, and meets the other ranks.
#pragma once

#include <filesystem>

namespace sparfuse::harness {

// folder: of the launch (harness/run/live/hosts/preflight.hpp). Prints facts as it finds them:
// facts of the host before MPI starts; then that the ranks met, and the differences of the wall
// clocks. Returns the exit status.
int TellFacts(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
