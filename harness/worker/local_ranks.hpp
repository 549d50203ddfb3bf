// Starts the ranks of a launch on this host, as mpirun would, and ends a rank that outlives its
// launch.
#pragma once

#include <string>
#include <vector>

namespace sparfuse::harness {

// Runs this program once a rank with these arguments, and waits for all of them. If a rank fails
// the others have some seconds to say so. Returns 0 where all ended well. To be called before there
// are threads.
int StartRanks(int ranks, const std::vector<std::string>& arguments);

// Starts a process that kills this one, stopped or not, when its time is up (kLifetimeVariable,
// harness/run/live/launch/launch_command.hpp), and that ends with it. Does nothing where the
// variable is not set. To be called before there are threads.
void StartGuardian();

}  // namespace sparfuse::harness
