// Compares the rate of the network that a file declares with what its measured dense steps say.
#pragma once

#include <optional>
#include <string>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

// At what rate bytes left a node, each way, 10^9 bit/s. A dense step exposes a part of the time
// that its bytes took: with all of backward added that is the longest they can have taken, alone
// the shortest.
struct ImpliedRate {
  double bytes = 0;            // that a ring sends out of a node: 2 (P - 1) / P of the gradients
  double least = 0, most = 0;  // most is infinite where nothing is exposed
  double nominal = 0;          // inter_node_gbps of all cards, or the reference's link
  double delivered = 0;        // what efficiency, host and links within a node leave of it
};

// Of a reference on several nodes whose method sends dense gradients as they are, and whose time is
// of its step or of what is exposed; else nothing.
std::optional<ImpliedRate> ImpliedRateOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// A sentence where the step needs more than the nominal rate, or shows less than half of what is
// declared as delivered; else "".
std::string RateConflict(const DeclaredCluster& cluster, const ReferenceStep& step);

}  // namespace sparfuse::harness
