// Holds the sizes that one rank notes in a run of Zen, as row and column sums, never a matrix.
// Computes their expected values from a model, and describes the messages and work of such a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baselines/zen/hash_lists.hpp"
#include "core/collective/collective.hpp"
#include "core/collective/overlap.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor ZenCollective();

// Sizes of one rank, in elements except `bitmap_bytes`. Without node-first aggregation nothing is
// local and the node's sum is the rank's own payload.
struct ZenSizes {
  std::uint64_t local_out = 0;     // sent to ranks of the node
  std::uint64_t local_in = 0;      // received from ranks of the node
  std::uint64_t local_merged = 0;  // read in summing within the node
  std::uint64_t node_sum = 0;      // of the node's sum: the part this rank sends to servers
  std::uint64_t out = 0;           // of `node_sum`: sent to other servers
  std::uint64_t in = 0;            // received from other ranks as a server
  std::uint64_t off_node_out = 0;  // of `out`: between nodes
  std::uint64_t off_node_in = 0;   // of `in`: between nodes
  std::uint64_t summed = 0;        // the server's sums
  std::uint64_t bitmap_bytes = 0;  // of the server's sums; 0: they travel with indices

  // Bytes that another rank gets from the server: head and body (hash_lists.hpp).
  std::uint64_t PulledBytes() const;
  std::uint64_t Kept() const { return node_sum - out; }  // the rank's part as its own server

  static ZenSizes Of(const std::vector<std::uint64_t>& seen);
  std::vector<std::uint64_t> Words() const;
};

// Which ranks exchange with which: server s is rank s. With node-first aggregation the ranks of a
// column, which have equal local ranks, exchange between nodes; else all ranks are one column.
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

// The number of ranks on the node of `rank`.
std::size_t RanksBeside(const Topology& topology, std::size_t rank);

// The expected sizes of every rank. With a hash the load of p servers is binomial: at m elements
// each, the busiest server is expected to have m + sqrt(2 m ln p). With contiguous ranges it has
// the skew of the largest range.
std::vector<ZenSizes> ExpectedZenSizes(const ExchangeSizes& sizes, const OverlapModel& overlap,
                                       const Topology& topology, const ZenGrid& grid,
                                       ZenBalance balance, FormChoice form);

// As Collective::Rounds, for any number of ranks.
RoundPlan ZenRounds(const ZenGrid& grid, const ExchangeSizes& sizes, const Topology& topology);

}  // namespace sparfuse::baselines
