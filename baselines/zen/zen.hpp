// Describes the collective `zen`: balanced parallelism. Every rank is a server. A hash of the index
// assigns elements to servers, so that skewed selections do not skew the loads. A server sums its
// elements once and sends the sums to all ranks.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor ZenCollective();

}  // namespace sparfuse::baselines
