// The workloads' registry as catalog entries.
#pragma once

#include <vector>

#include "harness/catalog/catalog.hpp"

namespace sparfuse {

std::vector<CatalogWorkload> WorkloadEntries();

}  // namespace sparfuse
