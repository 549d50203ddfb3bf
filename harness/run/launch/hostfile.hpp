// Reads the hosts that ranks may be started on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparfuse::harness {

struct Host {
  std::string name;
  int slots = 0;  // ranks that it has room for
};

// A hostfile of Open MPI: "NAME slots=N" a line, # begins a comment. Throws Error{kConfig} naming
// file and line, also for a host without slots, whose number mpirun would guess, and for one that
// is there twice; Error{kData} where there is no such file.
std::vector<Host> ReadHostfile(const std::filesystem::path& file);

// Ranks a host where `ranks` are spread over as many of the hosts as possible, equally. Throws
// Error{kConfig} naming the host that has fewer slots.
int RanksPerHost(const std::vector<Host>& hosts, int ranks, const std::filesystem::path& file);

}  // namespace sparfuse::harness
