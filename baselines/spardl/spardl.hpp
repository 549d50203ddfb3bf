// Describes the collective `spardl`: blocks are reduced and cut on the way, then gathered.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor SpardlCollective();

}  // namespace sparfuse::baselines
