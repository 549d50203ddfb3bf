#include "core/engine/owned_parts.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/engine/node_shards.hpp"

namespace sparfuse {

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
                                          .order = {.after = packed}}));
  }
  const Handle pushed =
      engine.Exchange({.pattern = ToOwners{std::move(selections)}, .label = label});
  SharedSum pull{{range, ShardOf(range, 0, parts).size(), unit.density}};
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

const StrategyDescriptor kOwnedParts = {
    .name = "owned-parts",
    .summary = "units in parts, which the ranks that own them sum, select from again, and send",
    .source = "Bai et al., HiPress, SOSP 2021, section 3",
    .revision = 2,
    .deviations = "",
    .sparsified = Sparsified::kBehind,
    .options = {{"server_ef",
                 true,
                 0,
                 0,
                 {},
                 "what owners do not select of their sums stays with them as a residual; off: it "
                 "is lost, as in the published extension"}},
    .make = [](const Options& options) -> std::unique_ptr<Strategy> {
      return std::make_unique<OwnedParts>(BoolOption(options, "server_ef"));
    },
    .dense_units = true,
    .owned_parts = true,
    .loses = [](const Options& options) { return !BoolOption(options, "server_ef"); }};

}  // namespace sparfuse
