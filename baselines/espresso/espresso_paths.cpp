#include "baselines/espresso/espresso_paths.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "baselines/espresso/espresso_planner.hpp"
#include "core/base/error.hpp"
#include "core/engine/strategies.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kLocal = "local", kNode = "node", kServer = "server";

// The steps of an option: within a node, between nodes, and back within the node.
enum class Within : std::uint8_t { kNothing, kDense, kHalves, kToOwners, kToFirst };
enum class Between : std::uint8_t { kGathered, kByOwners, kByRoot };
enum class Back : std::uint8_t { kNothing, kDense, kAsItCame, kSelectedAgain };

struct Path {
  Within within;
  Between between;
  Back back;
};

Path PathOf(int option) {
  switch (option) {
    case kRootBetween:
      return {Within::kDense, Between::kByRoot, Back::kDense};
    case kAllToAllBetween:
      return {Within::kDense, Between::kByOwners, Back::kDense};
    case kGatherBetween:
      return {Within::kDense, Between::kGathered, Back::kDense};
    case kOnProcessor:
      return {Within::kHalves, Between::kByOwners, Back::kDense};
    case kRootEncoded:
      return {Within::kToOwners, Between::kByRoot, Back::kAsItCame};
    case kAllToAllEncoded:
      return {Within::kToOwners, Between::kByOwners, Back::kAsItCame};
    case kFirstOfNode:
      return {Within::kToFirst, Between::kGathered, Back::kAsItCame};
    case kGatherSelected:
      return {Within::kToOwners, Between::kGathered, Back::kAsItCame};
    case kGatherAll:
      return {Within::kNothing, Between::kGathered, Back::kNothing};
    case kAllToAllOfAll:
      return {Within::kNothing, Between::kByOwners, Back::kNothing};
    case kSelectedTwice:
      return {Within::kToOwners, Between::kGathered, Back::kSelectedAgain};
    default:
      break;
  }
  SPARFUSE_THROW(kInternal, "espresso: a unit that is compressed by option " +
                                std::to_string(option) +
                                ": expected 2 to 12, or 0 if none was planned");
}

// The ranks of an exchange, and its channels.
struct Group {
  Channel out, back;
  int members;
  int member;  // this rank
};

// The exchanges of one unit.
class Chain {
 public:
  Chain(Engine& engine, const Unit& unit, Range range, std::string label)
      : engine_(engine), unit_(unit), range_(range), label_(std::move(label)) {
    const Topology& where = engine.topology();
    const int rank = engine.rank();
    all_ = {Channel::kData, Channel::kDataBack, where.ranks, rank};
    node_ = {Channel::kIntraNode, Channel::kIntraNodeBack, where.ranks_per_node,
             where.LocalRankOf(rank)};
    nodes_ = {Channel::kInterNode, Channel::kInterNodeBack, where.nodes(), where.NodeOf(rank)};
    lane_ = unit.path == kOnProcessor ? Lane::kHost : unit.lane;
  }

  // Returns the exchange to average.
  Handle Compressed(std::vector<Handle> packed) {
    // A unit from a planner without options is gathered.
    const Path path = PathOf(unit_.path == kWhole ? int{kGatherAll} : unit_.path);
    if (path.within == Within::kNothing || node_.members == 1) {
      return Send(path.between, all_, range_, kLocal, std::move(packed));
    }
    Range shard = ShardOf(range_, node_.member, node_.members);
    if (path.within == Within::kToFirst) shard = node_.member == 0 ? range_ : Range{};
    Handle done = SumWithin(path.within, shard, std::move(packed));
    const bool selected = path.within == Within::kToOwners || path.within == Within::kToFirst;
    counts_ = selected ? 0 : node_.members;
    if (shard.size() > 0) done = Send(path.between, nodes_, shard, kNode, {done});
    return SendBack(path, shard, done);
  }

  // Sums shards of shards, then gathers them back. Ranges are packed after `exchange.order`.
  Handle ByServers(bool f16, std::vector<Handle> packed) {
    const bool flat = node_.members == 1;
    const Group& servers = flat ? all_ : nodes_;
    const Range shard = flat ? range_ : ShardOf(range_, node_.member, node_.members);
    const auto halves = [f16](std::string_view residual) {
      return f16 ? std::optional(Halves{residual}) : std::nullopt;
    };
    Handle done = 0;
    if (!flat) {
      done = Dense(node_.out, SumShards{range_, halves(kLocal)}, std::move(packed), 1);
      packed = {done};
    }
    const bool alone = !flat && nodes_.members == 1;
    if (shard.size() > 0 && !alone) {
      done = Dense(servers.out, SumShards{shard, halves(flat ? kLocal : kNode)}, std::move(packed),
                   flat ? 1 : 0);
      done = Dense(servers.back, GatherShards{shard, halves(kServer)}, {done});
    }
    if (flat) return done;
    // Values from other nodes are halves already: casting them leaves no residual.
    return Dense(node_.back, GatherShards{range_, halves(alone ? kServer : "")}, {done});
  }

 private:
  Handle Dense(Channel channel, Pattern pattern, std::vector<Handle> after, int counts = 0) {
    return engine_.Exchange({.pattern = std::move(pattern),
                             .channel = channel,
                             .counts = counts,
                             .label = label_,
                             .order = {.after = std::move(after)}});
  }

  Handle Select(Range range, std::string_view residual, std::vector<Handle> after) {
    return engine_.Sparsify({.range = range,
                             .density = unit_.density,
                             .lane = lane_,
                             .residual = residual,
                             .order = {.after = std::move(after)}});
  }
  Handle Merge(Handle exchange) { return engine_.Merge({.exchange = exchange, .lane = lane_}); }

  // Leaves the node's sum of this rank's shard in the flat gradient.
  Handle SumWithin(Within within, Range shard, std::vector<Handle> packed) {
    if (within == Within::kDense || within == Within::kHalves) {
      SumShards sum{range_};
      if (within == Within::kHalves) sum.halves = Halves{kLocal};
      return Dense(node_.out, sum, std::move(packed));
    }
    const int parts = within == Within::kToFirst ? 1 : PartsOf(range_, node_.members);
    const Handle sent = Push(node_, range_, parts, 0, kLocal, packed);
    return shard.size() > 0 ? Merge(sent) : sent;
  }

  static int PartsOf(Range range, int members) {
    return static_cast<int>(std::min(static_cast<std::size_t>(members), range.size()));
  }

  // Selects from parts of the range. The first part belongs to `owner`.
  Handle Push(const Group& group, Range range, int parts, int owner, std::string_view residual,
              const std::vector<Handle>& after) {
    std::vector<Handle> selections;
    for (int j = 0; j < parts; ++j) {
      selections.push_back(Select(ShardOf(range, j, parts), residual, after));
    }
    return engine_.Exchange({.pattern = ToOwners{std::move(selections), owner},
                             .channel = group.out,
                             .counts = counts_,
                             .label = label_});
  }

  // Sums the range over the group, compressed. The exchange delivers the sum.
  Handle Send(Between between, const Group& group, Range range, std::string_view residual,
              std::vector<Handle> after) {
    if (between == Between::kGathered) {
      const Handle selected = Select(range, residual, std::move(after));
      return engine_.Exchange({.pattern = SparseSum{{selected}},
                               .channel = group.out,
                               .counts = counts_,
                               .label = label_});
    }
    const bool rooted = between == Between::kByRoot;
    const int root = engine_.topology().LocalRankOf(engine_.rank()) % group.members;
    const int parts = rooted ? 1 : PartsOf(range, group.members);
    const int owner = rooted ? root : 0;
    const Handle pushed = Push(group, range, parts, owner, residual, after);
    SharedPart given;
    const int part = (group.member + group.members - owner) % group.members;
    if (part < parts) {
      given = Selected{Select(ShardOf(range, part, parts), kServer, {Merge(pushed)})};
    }
    const SharedRange shared{range, ShardOf(range, 0, parts).size(), unit_.density};
    return Pull(group.back, shared, rooted ? std::optional(owner) : std::nullopt, given, pushed);
  }

  // Delivers to all members the sum of their parts of the range, or the part of `owner` alone.
  Handle Pull(Channel channel, const SharedRange& shared, std::optional<int> owner,
              SharedPart given, Handle after) {
    return engine_.Exchange({.pattern = owner ? Pattern(FromOwner{shared, *owner, given})
                                              : Pattern(SharedSum{shared, given}),
                             .channel = channel,
                             .counts = 0,
                             .label = label_,
                             .order = {.after = {after}}});
  }

  // Delivers to all ranks of the node the result of `between` for their shards.
  Handle SendBack(const Path& path, Range shard, Handle between) {
    if (path.back == Back::kDense) {
      const Handle merged = shard.size() > 0 ? Merge(between) : between;
      return Dense(node_.back, GatherShards{range_}, {merged});
    }
    const bool first = path.within == Within::kToFirst;
    const Range largest = first ? range_ : ShardOf(range_, 0, node_.members);
    SharedRange shared{range_, largest.size(), unit_.density};
    SharedPart given;
    if (path.back == Back::kAsItCame) {
      if (path.between == Between::kGathered)
        shared.parts = static_cast<std::size_t>(nodes_.members);
      if (path.between == Between::kByOwners) {
        const int parts = PartsOf(largest, nodes_.members);
        shared.largest = ShardOf(largest, 0, parts).size();
        shared.parts = static_cast<std::size_t>(parts);
      }
      if (shard.size() > 0) given = Forwarded{between};
    } else if (shard.size() > 0) {
      given = Selected{engine_.Sparsify({.range = shard,
                                         .density = unit_.density,
                                         .lane = lane_,
                                         .residual = kServer,
                                         .copy_of = node_.member,
                                         .order = {.after = {Merge(between)}}})};
    }
    return Pull(node_.back, shared, first ? std::optional(0) : std::nullopt, given, between);
  }

  Engine& engine_;
  const Unit& unit_;
  Range range_;
  std::string label_;
  Lane lane_;
  Group all_, node_, nodes_;
  int counts_ = 1;  // ExchangeRequest::counts of the next selection
};

}  // namespace

Handle EspressoPaths::SendBehind(Engine& engine, const Unit& unit, Range range,
                                 std::vector<Handle> packed, std::string label) {
  return Chain(engine, unit, range, std::move(label)).Compressed(std::move(packed));
}

Handle EspressoPaths::SendDense(Engine& engine, const Unit& unit, ExchangeRequest exchange) {
  const Range range = engine.layout().RangeOf(unit.first, unit.last);
  if (unit.path == kByServers || unit.path == kHalvesByServers) {
    return Chain(engine, unit, range, std::move(exchange.label))
        .ByServers(unit.path == kHalvesByServers, std::move(exchange.order.after));
  }
  if (unit.path == kHalves) exchange.pattern = HalvesSum{range};
  return engine.Exchange(std::move(exchange));
}

const StrategyDescriptor kEspressoPaths = {
    .name = "espresso",
    .summary =
        "each unit by one of Espresso's options: in fp32, in fp16, or compressed within or between "
        "nodes, on cards or processors",
    .source = "Wang et al., Espresso, EuroSys 2023",
    .revision = 2,
    .deviations = "",
    .sparsified = Sparsified::kBehind,
    .options = {},
    .make = [](const Options&) -> std::unique_ptr<Strategy> {
      return std::make_unique<EspressoPaths>();
    },
    .dense_units = true,
    .node_shards = true,
    .owned_parts = true};

}  // namespace sparfuse::baselines
