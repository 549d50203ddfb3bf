// Sends units by way of shards: of a node, whose ranks have summed them, or of ranks that own a
// part of each. Lists the strategies that no paper owns.
#pragma once

#include <string>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

// Shard `member`, from 0, of a range that `members` ranks share (core/collective/algorithms.hpp).
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

// As UnitStrategy behind, but for what becomes of a unit in K partitions, of which rank j owns the
// j-th (algorithms.hpp); no more than there are ranks and elements.
//
//   Sparsify each part           residual "local"
//   reduce-scatter, sparse       the owner has all ranks' selections of its part
//   Merge, Sparsify the sum      residual "server", on the owner alone
//   exchange of all parts        averaged
//
// Without a residual of the owners, what they do not select of a sum is lost. Parts of density 1
// may be sent by a quantizer: owners decode all ranks' codes of their part, and encode the sum
// again.
class OwnedParts final : public UnitStrategy {
 public:
  explicit OwnedParts(bool server_residual = true) : server_residual_(server_residual) {}

 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;

  bool server_residual_;
};

extern const StrategyDescriptor kOwnedParts;

}  // namespace sparfuse
