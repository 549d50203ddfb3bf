// Starts the ranks of a launch on this host, as mpirun would.
#pragma once

#include <string>
#include <vector>

namespace sparfuse::harness {

// Runs this program once a rank with these arguments, and waits for all of them. If a rank fails
// the others have some seconds to say so. Returns 0 if all ended well. To be called before there
// are threads.
int StartRanks(int ranks, const std::vector<std::string>& arguments);

}  // namespace sparfuse::harness
