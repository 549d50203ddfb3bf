// Sends units in two levels: summed within each node, sparsified in shards, sent between nodes.
//
// Source:      S. Shi et al., Towards Scalable Distributed Training of Deep Learning on Public
//              Cloud Clusters, MLSys 2021, section 4 (HiTopKComm).
#pragma once

#include <string>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

// Shard `member`, from 0, of a range that `members` ranks share (core/collective/shards.hpp).
Range ShardOf(Range whole, int member, int members);

// As UnitStrategy behind, but for what becomes of a unit, on nodes of g ranks:
//
//   reduce-scatter within the node   each rank has a g-th of the unit, summed over the node
//   Sparsify its shard               the residual lies on that shard: no other rank of the node
//                                    selects from it
//   exchange between nodes           with the ranks that have the same shard
//   Merge                            their sum takes the shard's place
//   all-gather within the node       all shards, which are averaged
//
// A node of one rank leaves the first and the last two out. An empty shard is not exchanged.
class NodeShards final : public UnitStrategy {
 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;
};

extern const StrategyDescriptor kNodeShards;

}  // namespace sparfuse
