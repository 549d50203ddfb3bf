// The workloads' registry as catalog entries.
#pragma once

#include <vector>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

std::vector<CatalogWorkload> WorkloadEntries();

}  // namespace sparfuse::harness
