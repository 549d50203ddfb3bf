// Spreads ranks over hosts, and checks afterwards where they were.
#pragma once

#include <string>
#include <vector>

#include "harness/records/cell_config.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_method.hpp"

namespace sparfuse::harness {

// The hosts of the method's hostfile, which it has. Throws as ReadHostfile.
std::vector<Host> HostsOf(const LaunchMethod& launch);

// How many hosts the hostfile or the allocation has. Throws Error{kConfig} where there is neither,
// naming what would say it.
int HostCount(const LaunchMethod& launch);

// How many of `ranks` a host gets where they are spread over all hosts there are. Throws
// Error{kConfig}, also where a host has too few slots.
int RanksPerNode(const LaunchMethod& launch, int ranks);

// Ranks of a node are on one host and those of others on others: a link between nodes that leads
// back to its own host would be measured in silence. placement: host names in the order of ranks.
// Throws Error{kConfig} naming two ranks of which that is not so.
void CheckPlacement(const std::vector<std::string>& placement, const CellConfig& config,
                    const LaunchMethod& launch);

}  // namespace sparfuse::harness
