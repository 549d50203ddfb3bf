#include "core/engine/node_shards.hpp"

#include <memory>
#include <utility>

#include "core/collective/shards.hpp"

namespace sparfuse {

Range ShardOf(Range whole, int member, int members) {
  const Shards shards{whole.size(), static_cast<std::size_t>(members)};
  const std::size_t begin = whole.begin + shards.Begin(static_cast<std::size_t>(member));
  return {begin, begin + shards.Size(static_cast<std::size_t>(member))};
}

Handle NodeShards::SendBehind(Engine& engine, const Unit& unit, Range range,
                              std::vector<Handle> packed, std::string label) {
  const Topology& where = engine.topology();
  if (where.ranks_per_node == 1) {
    return UnitStrategy::SendBehind(engine, unit, range, std::move(packed), std::move(label));
  }
  Handle summed = engine.Exchange({.pattern = SumShards{range},
                                   .channel = Channel::kIntraNode,
                                   .counts = 0,
                                   .label = label,
                                   .order = {.after = std::move(packed)}});
  const Range shard = ShardOf(range, where.LocalRankOf(engine.rank()), where.ranks_per_node);
  if (shard.size() > 0) {
    const Handle selected = engine.Sparsify(
        {.range = shard, .density = unit.density, .lane = unit.lane, .order = {.after = {summed}}});
    const Handle sent = engine.Exchange({.pattern = SparseSum{{selected}},
                                         .channel = Channel::kInterNode,
                                         .counts = where.ranks_per_node,
                                         .label = label});
    summed = engine.Merge({.exchange = sent, .lane = unit.lane});
  }
  return engine.Exchange({.pattern = GatherShards{range},
                          .channel = Channel::kIntraNodeBack,
                          .counts = 0,
                          .label = std::move(label),
                          .order = {.after = {summed}}});
}

const StrategyDescriptor kNodeShards = {
    "node-shards",
    "units are summed within nodes; each rank of a node sparsifies a shard of the sum",
    "Shi et al., HiTopKComm, MLSys 2021, section 4",
    2,
    "",
    Sparsified::kBehind,
    {},
    [](const Options&) -> std::unique_ptr<Strategy> { return std::make_unique<NodeShards>(); },
    true,
    true};

}  // namespace sparfuse
