// The rank of a launch that trains nothing: reports its host, and meets the other ranks.
#pragma once

#include <filesystem>

namespace sparfuse::harness {

// folder: of the launch (harness/run/live/hosts/preflight.hpp). Prints facts as it finds them: of
// the host before MPI is there, then that the ranks met and how far the wall clocks are apart.
// Returns the exit status.
int TellFacts(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
