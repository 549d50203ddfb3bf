// Describes the collective `zen`: balanced parallelism. Every rank is a server, a hash of the index
// says of which elements, so that no skew of what is selected reaches the loads; a server sums its
// elements once and gives them to all.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor ZenCollective();

}  // namespace sparfuse::baselines
