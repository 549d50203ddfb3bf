// Says which of the inputs in which two declared clusters differ makes a cell's step differ.
#pragma once

#include <string>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

struct ExchangedInput {
  std::string what;      // "inter_node_gbps", "compute", "selections and codings", "collectives"
  std::string of, over;  // what the clusters state, "100 us"; "" where it is no one number
  double factor = 1;     // of's step over what it would be with this of the other cluster
};

// The step of `of` on its cluster, modelled again with one input at a time as `over` has it,
// planned anew; forward, backward and the update's rate are one input, and so are all that
// selections and codings take, and how collectives are done. What changes the step by less than 1 %
// is left out; the largest factor, either way, comes first. Inputs act on each other: factors do
// not multiply to the whole difference.
std::vector<ExchangedInput> ExchangedInputs(const DeclaredCluster& of, const DeclaredCluster& over,
                                            const CellConfig& of_cell, int over_ranks_per_node);

}  // namespace sparfuse::harness
