// Holds what one rank notes of a run of Zen, row and column sums and never a matrix, and expects it
// from a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baselines/zen/hash_lists.hpp"
#include "core/collective/overlap.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse::baselines {

// Of one rank. Elements, but for `bitmap_bytes`. Without node-first aggregation nothing is local
// and the node's sum is the rank's own payload.
struct ZenSizes {
  std::uint64_t local_out = 0;  // to ranks of the node, and from them
  std::uint64_t local_in = 0;
  std::uint64_t local_merged = 0;  // read while they are summed
  std::uint64_t node_sum = 0;      // of the node that this rank shares out among servers
  std::uint64_t out = 0;           // of it, to other servers; from others
  std::uint64_t in = 0;
  std::uint64_t off_node_out = 0;  // of `out` and `in`, between nodes
  std::uint64_t off_node_in = 0;
  std::uint64_t summed = 0;        // the server's sums
  std::uint64_t bitmap_bytes = 0;  // of them; 0: they travel with indices

  // What another rank gets of the server: head and body (hash_lists.hpp).
  std::uint64_t PulledBytes() const;
  std::uint64_t Kept() const { return node_sum - out; }  // what is its own server's

  static ZenSizes Of(const std::vector<std::uint64_t>& seen);
  std::vector<std::uint64_t> Words() const;
};

// Who talks to whom: server s is rank s. With node-first aggregation the ranks of a column, those
// of equal local rank, exchange between nodes; else all ranks are one column.
struct ZenGrid {
  std::size_t ranks = 1;
  std::size_t local = 1;  // ranks of a node that aggregate first

  static ZenGrid Of(bool node_first, const Topology& topology) {
    const bool two_levels = node_first && topology.ranks_per_node > 1 && topology.nodes() > 1;
    return {static_cast<std::size_t>(topology.ranks),
            two_levels ? static_cast<std::size_t>(topology.ranks_per_node) : 1};
  }
  std::size_t nodes() const { return ranks / local; }  // ranks of a column
};

// Ranks on the node of this one.
std::size_t RanksBeside(const Topology& topology, std::size_t rank);

// Of every rank. By a hash the load of p servers is binomial: of m elements each the busiest is
// expected to have m + sqrt(2 m ln p). With contiguous ranges it has the skew of the largest one.
std::vector<ZenSizes> ExpectedZenSizes(const ExchangeSizes& sizes, const OverlapModel& overlap,
                                       const Topology& topology, const ZenGrid& grid,
                                       ZenBalance balance, FormChoice form);

}  // namespace sparfuse::baselines
