// Declares strategies that send a unit in shards: shards of the sum over a node's ranks, or parts
// that ranks own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

// Shard `member`, from 0, of a range that `members` ranks share (core/collective/algorithms.hpp).
Range ShardOf(Range whole, int member, int members);
// The same shared in whole tensors: runs of neighbours, one for each member, of which the longest
// is as short as it can be. None is empty if there are enough tensors. Precondition: the range is
// that of whole tensors.
std::vector<Range> ShardsOfTensors(const GradientLayout& layout, Range whole, int members);

// A UnitStrategy that sends a unit sparsified behind in these steps, on nodes of g ranks:
//
//   reduce-scatter within the node   each rank has a g-th of the unit, summed over the node
//   Sparsify its shard               the residual covers that shard alone, from which no other
//                                    rank of the node selects
//   exchange between nodes           with the ranks that have the same shard
//   Merge                            their sum replaces the shard
//   all-gather within the node       all shards, which are averaged
//
// A node of one rank leaves out the first step and the last two. An empty shard is not exchanged.
// Shards are even ones, or of whole tensors, for collectives that treat a tensor by its shape.
class NodeShards final : public UnitStrategy {
 public:
  enum class Cut : std::uint8_t { kEven, kTensors };
  explicit NodeShards(Cut cut = Cut::kEven) : cut_(cut) {}

 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;

  Cut cut_;
};

extern const StrategyDescriptor kNodeShards, kNodeTensors;

// A UnitStrategy that cuts a unit sparsified behind into K partitions; rank j owns partition j
// (algorithms.hpp). K is at most the number of ranks and of elements. The steps:
//
//   Sparsify each part           residual "local"
//   reduce-scatter, sparse       the owner has all ranks' selections of its part
//   Merge, Sparsify the sum      residual "server", on the owner alone
//   exchange of all parts        averaged
//
// Without the "server" residual, the elements of a sum that its owner does not select are lost;
// without "local", those of a rank's own gradient. Parts of density 1 may be sent by a quantizer:
// owners decode all ranks' codes of their part, and encode the sum again. The residuals then keep
// rounding errors.
class OwnedParts final : public UnitStrategy {
 public:
  explicit OwnedParts(bool server_residual = true, bool local_residual = true)
      : server_residual_(server_residual), local_residual_(local_residual) {}

 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;

  bool server_residual_, local_residual_;
};

extern const StrategyDescriptor kOwnedParts;

}  // namespace sparfuse
