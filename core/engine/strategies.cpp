#include "core/engine/strategies.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/collective/algorithms.hpp"
#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

Range ShardOf(Range whole, int member, int members) {
  const Shards shards{whole.size(), static_cast<std::size_t>(members)};
  const std::size_t begin = whole.begin + shards.Begin(static_cast<std::size_t>(member));
  return {begin, begin + shards.Size(static_cast<std::size_t>(member))};
}

std::vector<Range> ShardsOfTensors(const GradientLayout& layout, Range whole, int members) {
  std::vector<std::size_t> ends;  // of the tensors
  std::size_t longest = 0;
  for (const std::size_t t : layout.TensorsIn(whole)) {
    const Range tensor = layout.tensor(t).range();
    ends.push_back(tensor.end);
    longest = std::max(longest, tensor.size());
  }
  const auto parts = static_cast<std::size_t>(members);
  // Cuts as late as shards of `most` elements allow, but leaves a tensor for each later shard if
  // there are so many. The last shard has the rest.
  const auto cut = [&](std::size_t most) {
    std::vector<Range> shards;
    auto next = ends.begin();
    std::size_t begin = whole.begin;
    while (shards.size() + 1 < parts) {
      const auto later = static_cast<std::ptrdiff_t>(parts - shards.size() - 1);
      std::size_t end = begin;
      for (; next != ends.end() && *next - begin <= most; ++next) {
        if (end > begin && ends.end() - next <= later) break;
        end = *next;
      }
      shards.push_back({begin, end});
      begin = end;
    }
    shards.push_back({begin, whole.end});
    return shards;
  };
  std::size_t least = std::max(longest, (whole.size() + parts - 1) / parts), enough = whole.size();
  while (least < enough) {
    const std::size_t most = least + (enough - least) / 2;
    if (cut(most).back().size() <= most) {
      enough = most;
    } else {
      least = most + 1;
    }
  }
  return cut(enough);
}

Handle NodeShards::SendBehind(Engine& engine, const Unit& unit, Range range,
                              std::vector<Handle> packed, std::string label) {
  const Topology& where = engine.topology();
  if (where.ranks_per_node == 1) {
    return UnitStrategy::SendBehind(engine, unit, range, std::move(packed), std::move(label));
  }
  const int place = where.LocalRankOf(engine.rank()), members = where.ranks_per_node;
  std::vector<Range> shards;
  if (cut_ == Cut::kTensors) shards = ShardsOfTensors(engine.layout(), range, members);
  const Range shard =
      shards.empty() ? ShardOf(range, place, members) : shards[static_cast<std::size_t>(place)];
  Handle summed = engine.Exchange({.pattern = SumShards{range, {}, shards},
                                   .channel = Channel::kIntraNode,
                                   .counts = 0,
                                   .label = label,
                                   .order = {.after = std::move(packed)}});
  if (shard.size() > 0) {
    const Handle selected = engine.Sparsify(
        {.range = shard, .density = unit.density, .lane = unit.lane, .order = {.after = {summed}}});
    const Handle sent = engine.Exchange({.pattern = SparseSum{{selected}},
                                         .channel = Channel::kInterNode,
                                         .counts = where.ranks_per_node,
                                         .label = label});
    summed = engine.Merge({.exchange = sent, .lane = unit.lane});
  }
  return engine.Exchange({.pattern = GatherShards{range, {}, std::move(shards)},
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

const StrategyDescriptor kNodeTensors = {
    "node-tensors",
    "units are summed within nodes; each rank of a node sparsifies whole tensors of the sum",
    "From et al., DeToNATION, arXiv 2502.06728 (FlexDeMo)",
    1,
    "The tensors of a unit stay in their order, so that ranks of a node may have unequal shards.",
    Sparsified::kBehind,
    {},
    [](const Options&) -> std::unique_ptr<Strategy> {
      return std::make_unique<NodeShards>(NodeShards::Cut::kTensors);
    },
    true,
    true,
    true};

Handle OwnedParts::SendBehind(Engine& engine, const Unit& unit, Range range,
                              std::vector<Handle> packed, std::string label) {
  const int parts =
      static_cast<int>(std::min({static_cast<std::size_t>(unit.partitions),
                                 static_cast<std::size_t>(engine.workers()), range.size()}));
  std::vector<Handle> selections;
  for (int j = 0; j < parts; ++j) {
    selections.push_back(engine.Sparsify({.range = ShardOf(range, j, parts),
                                          .density = unit.density,
                                          .lane = unit.lane,
                                          .keeps_unsent = local_residual_,
                                          .order = {.after = packed}}));
  }
  const Handle pushed =
      engine.Exchange({.pattern = ToOwners{std::move(selections)}, .label = label});
  SharedSum pull{{range, ShardOf(range, 0, parts).size(), unit.density}};
  for (int j = 0; j < parts; ++j) pull.shared.owned.push_back(ShardOf(range, j, parts));
  if (engine.rank() < parts) {
    const Handle merged = engine.Merge({.exchange = pushed, .lane = unit.lane});
    pull.given = Selected{engine.Sparsify({.range = ShardOf(range, engine.rank(), parts),
                                           .density = unit.density,
                                           .lane = unit.lane,
                                           .residual = server_residual_ ? "server" : "",
                                           .order = {.after = {merged}}})};
  }
  return engine.Exchange({.pattern = pull,
                          .channel = Channel::kDataBack,
                          .counts = 0,
                          .label = std::move(label),
                          .order = {.after = {pushed}}});
}

namespace {

// Sends units as dense ones, with halves on the wire.
class HalfUnits final : public UnitStrategy {
 protected:
  Handle SendDense(Engine& engine, const Unit& unit, ExchangeRequest exchange) override {
    exchange.pattern =
        HalvesSum{engine.layout().RangeOf(unit.first, unit.last), Halves{.residual = {}}};
    return engine.Exchange(std::move(exchange));
  }
};

}  // namespace

const StrategyDescriptor kOwnedParts = {
    .name = "owned-parts",
    .summary =
        "units in parts; the rank that owns a part sums it, selects from the sum, and sends the "
        "selection",
    .source = "Bai et al., HiPress, SOSP 2021, section 3",
    .revision = 2,
    .sparsified = Sparsified::kBehind,
    .options = {FlagOption("server_ef", true,
                           "owners keep the unselected elements of their sums as a residual; off: "
                           "these are lost, as in the published extension"),
                FlagOption("local_ef", true,
                           "ranks keep the unselected elements of their own gradients as a "
                           "residual; off: these are lost")},
    .make = [](const Options& options) -> std::unique_ptr<Strategy> {
      return std::make_unique<OwnedParts>(BoolOption(options, "server_ef"),
                                          BoolOption(options, "local_ef"));
    },
    .dense_units = true,
    .owned_parts = true,
    .owned_whole = true,
    .loses =
        [](const Options& options) {
          return !BoolOption(options, "server_ef") || !BoolOption(options, "local_ef");
        }};

std::span<const StrategyDescriptor> CoreStrategies() {
  constexpr auto kMake = [](const Options&) -> std::unique_ptr<Strategy> {
    return std::make_unique<UnitStrategy>();
  };
  static const std::vector<StrategyDescriptor> kStrategies = {
      {"dense-units",
       "all-reduce of each unit when its last gradient is ready",
       "Li et al., PyTorch Distributed, VLDB 2020",
       1,
       "",
       Sparsified::kNever,
       {},
       kMake,
       true},
      {.name = "half-units",
       .summary = "all-reduce of each unit in fp16 when its last gradient is ready",
       .source = "Li et al., PyTorch Distributed, VLDB 2020; its fp16_compress_hook",
       .revision = 1,
       .sparsified = Sparsified::kNever,
       .make = [](const Options&) -> std::unique_ptr<Strategy> {
         return std::make_unique<HalfUnits>();
       },
       .dense_units = true,
       .loses = [](const Options&) { return true; }},
      {"ahead",
       "each tensor is sparsified when it is ready; a unit is sent when it is complete",
       "SAFusion, HPDC 2025, section 3",
       1,
       "",
       Sparsified::kAhead,
       {},
       kMake,
       true},
      {"behind",
       "tensors are fused first; a unit is sparsified and sent when it is complete",
       "SAFusion, HPDC 2025, section 2",
       1,
       "",
       Sparsified::kBehind,
       {},
       kMake,
       true},
      kNodeShards,
      kNodeTensors,
      kOwnedParts,
  };
  return kStrategies;
}

}  // namespace sparfuse
