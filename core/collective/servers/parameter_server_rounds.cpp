// Says what messages and sums an exchange through parameter servers takes.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/collective/servers/parameter_server.hpp"

namespace sparfuse {
namespace {

// Partitions' elements by stage in one step; 0: none.
using StageSizes = std::array<std::size_t, kServerStageCount>;

std::uint64_t BusierWay(const Traffic& of) { return std::max(of.bytes_sent, of.bytes_received); }
std::uint64_t NonEmpty(const ServerPart& run, std::size_t parts) {
  return std::min(run.size, parts);
}

// What is moved in some stages at once.
struct Moves {
  std::vector<Traffic> within, between;  // [ranks] by link class
  Traffic of_server;                     // bytes of the busiest dedicated one
  std::uint64_t added = 0;               // elements, by the busiest rank or server

  explicit Moves(std::size_t ranks) : within(ranks), between(ranks) {}
};

// `sent` and `received` elements where sums are made; where they are given back it is the reverse.
void Count(Traffic& of, ServerStage stage, std::uint64_t sent_messages, std::uint64_t sent,
           std::uint64_t received_messages, std::uint64_t received) {
  Traffic moved{sent_messages, received_messages, sent * sizeof(float), received * sizeof(float)};
  if (!AddsUp(stage)) {
    std::swap(moved.messages_sent, moved.messages_received);
    std::swap(moved.bytes_sent, moved.bytes_received);
  }
  of += moved;
}

class ServerRounds {
 public:
  ServerRounds(const ServerOptions& options, std::size_t elements, const Topology& topology)
      : topology_(topology),
        grid_(ServerGrid::Of(options.node_first, topology)),
        partitions_{elements, options.partition} {
    if (!options.dedicated || topology.nodes() == 1) return;
    servers_ = options.servers > 0 ? options.servers : static_cast<std::size_t>(topology.nodes());
  }

  // All partitions but the last one are of equal size, and so are most steps.
  RoundPlan Rounds() const {
    RoundPlan plan;
    plan.per_rank.resize(grid_.ranks());
    for (std::size_t step = 0; step < partitions_.steps();) {
      const StageSizes sizes = SizesAt(step);
      std::uint32_t repeat = 1;
      while (step + repeat < partitions_.steps() && SizesAt(step + repeat) == sizes) ++repeat;
      AddRound(sizes, repeat, plan);
      step += repeat;
    }
    return plan;
  }

 private:
  StageSizes SizesAt(std::size_t step) const {
    StageSizes sizes{};
    for (const ServerStage stage : kServerStages) {
      if ((IsInNode(stage) ? grid_.local : grid_.columns) == 1) continue;  // nobody to give to
      const auto partition = partitions_.At(stage, step);
      if (partition) sizes[static_cast<std::size_t>(stage)] = partitions_[*partition].size;
    }
    return sizes;
  }

  void AddInNode(ServerStage stage, const ServerPart& partition, Moves& moves) const {
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < grid_.ranks(); ++rank) {
      const std::uint64_t mine = grid_.ShareOf(partition, rank).size;
      const std::uint64_t others = grid_.local - 1;
      Count(moves.within[rank], stage, NonEmpty(partition, grid_.local) - (mine > 0),
            partition.size - mine, mine > 0 ? others : 0, others * mine);
      most = std::max(most, others * mine);
    }
    if (AddsUp(stage)) moves.added += most;
  }

  void AddAmongRanks(ServerStage stage, const ServerPart& partition, Moves& moves) const {
    const auto per_node = static_cast<std::size_t>(topology_.ranks_per_node);
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < grid_.ranks(); ++rank) {
      const ServerPart share = grid_.ShareOf(partition, rank);
      const std::size_t column = grid_.ColumnOf(rank);
      const std::uint64_t mine = share.Of(grid_.columns, column).size;
      // The columns that are on this rank's node: itself, or all of the node.
      const std::size_t first = grid_.local > 1 ? column : column / per_node * per_node;
      const std::size_t end =
          grid_.local > 1 ? column + 1 : std::min(first + per_node, grid_.columns);
      std::uint64_t here = 0;
      std::uint64_t messages_here = 0;
      for (std::size_t c = first; c < end; ++c) {
        const std::size_t part = share.Of(grid_.columns, c).size;
        here += part;
        messages_here += part > 0;
      }
      const std::uint64_t near = end - first - 1;
      const std::uint64_t far = grid_.columns - (end - first);
      Count(moves.within[rank], stage, messages_here - (mine > 0), here - mine, mine > 0 ? near : 0,
            near * mine);
      Count(moves.between[rank], stage, NonEmpty(share, grid_.columns) - messages_here,
            share.size - here, mine > 0 ? far : 0, far * mine);
      most = std::max(most, (near + far) * mine);
    }
    if (AddsUp(stage)) moves.added += most;
  }

  void AddWithServers(ServerStage stage, const ServerPart& partition, Moves& moves) const {
    std::uint64_t of_last = 0;  // no server has more
    for (std::size_t rank = 0; rank < grid_.ranks(); ++rank) {
      const ServerPart share = grid_.ShareOf(partition, rank);
      const std::uint64_t messages = NonEmpty(share, servers_);
      Count(moves.between[rank], stage, messages, share.size, 0, 0);
      of_last += share.Of(servers_, servers_ - 1).size;
    }
    Count(moves.of_server, stage, 0, 0, 0, of_last);
    if (AddsUp(stage)) moves.added += of_last;
  }

  void AddRound(const StageSizes& sizes, std::uint32_t repeat, RoundPlan& plan) const {
    Moves moves(grid_.ranks());
    for (const ServerStage stage : kServerStages) {
      const ServerPart partition{0, sizes[static_cast<std::size_t>(stage)]};
      if (partition.size == 0) continue;
      if (IsInNode(stage)) {
        AddInNode(stage, partition, moves);
      } else if (servers_ > 0) {
        AddWithServers(stage, partition, moves);
      } else {
        AddAmongRanks(stage, partition, moves);
      }
    }
    Round round{.repeat = repeat, .messages = 0, .link = LinkClass::kIntraNode};
    std::vector<Traffic> of_node(static_cast<std::size_t>(topology_.nodes()));
    std::uint64_t between = 0;
    std::uint64_t within = 0;
    for (std::size_t rank = 0; rank < grid_.ranks(); ++rank) {
      Traffic moved = moves.within[rank];
      moved += moves.between[rank];
      // Of servers that only pull brings something from: as many as it would push to.
      const std::uint64_t messages = std::max(moved.messages_sent, moved.messages_received);
      round.messages = std::max(round.messages, static_cast<std::uint32_t>(messages));
      within = std::max(within, BusierWay(moves.within[rank]));
      between = std::max(between, BusierWay(moves.between[rank]));
      of_node[static_cast<std::size_t>(topology_.NodeOf(static_cast<int>(rank)))] +=
          moves.between[rank];
      plan.per_rank[rank] += {repeat * moved.messages_sent, repeat * moved.messages_received,
                              repeat * moved.bytes_sent, repeat * moved.bytes_received};
    }
    if (round.messages == 0) return;
    std::uint64_t node = BusierWay(moves.of_server);
    for (const Traffic& traffic : of_node) node = std::max(node, BusierWay(traffic));
    if (node > 0) {
      round.link = LinkClass::kInterNode;
      round.bytes = repeat * between;
      round.node_bytes = repeat * node;
      round.within_bytes = repeat * within;
    } else {
      round.bytes = repeat * within;
    }
    round[Work::kAdd] = repeat * moves.added;
    plan.rounds.push_back(round);
  }

  Topology topology_;
  ServerGrid grid_;
  ServerPartitions partitions_;
  std::size_t servers_ = 0;  // dedicated ones; 0: the ranks
};

}  // namespace

RoundPlan ParameterServerRounds(const ServerOptions& options, std::size_t elements,
                                const Topology& topology) {
  return ServerRounds(options, elements, topology).Rounds();
}

}  // namespace sparfuse
