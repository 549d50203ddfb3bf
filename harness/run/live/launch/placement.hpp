// Spreads ranks over hosts, and checks their placement afterwards.
#pragma once

#include <string>
#include <vector>

#include "harness/records/cell_config.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_method.hpp"

namespace sparfuse::harness {

// The hosts of the method's hostfile. Precondition: it has one. Throws as ReadHostfile.
std::vector<Host> HostsOf(const LaunchMethod& launch);

// The number of hosts in the hostfile or the allocation. Throws Error{kConfig} if neither exists,
// naming the option that gives one.
int HostCount(const LaunchMethod& launch);

// The number of `ranks` on each host if they are spread over all hosts. Throws Error{kConfig}, also
// if a host has too few slots.
int RanksPerNode(const LaunchMethod& launch, int ranks);

// Checks that the ranks of a node are on one host, and the ranks of different nodes on different
// hosts. Otherwise a link between nodes would lead back to its own host, and nobody would notice.
// placement: host names in the order of ranks. Throws Error{kConfig} naming two ranks that violate
// this.
void CheckPlacement(const std::vector<std::string>& placement, const CellConfig& config,
                    const LaunchMethod& launch);

}  // namespace sparfuse::harness
