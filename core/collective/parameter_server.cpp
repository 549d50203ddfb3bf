// Sums through parameter servers: partitions of the buffer are pushed to servers, added up there
// and pulled back.
//
// The buffer is cut into partitions. Each partition passes four stages. In every step each stage
// works on a different partition, the first stage ahead of the others:
//
//   reduce      the ranks of a node split the partition; each sums one share (node_first)
//   push        each rank's share is split again among the servers, which sum it
//   pull        the servers return the sums
//   distribute  the ranks of a node exchange their shares
//
// Without machines of their own, the servers are the ranks. With node_first, ranks of equal local
// rank serve one another. The ranks of a node together then push (N - 1) / N of a partition each
// way over the node's network, and pull as much.
//
// Source:      Y. Jiang, Y. Zhu, C. Lan, B. Yi, Y. Cui & C. Guo, A Unified Architecture for
//              Accelerating Distributed DNN Training in Heterogeneous GPU/CPU Clusters (BytePS),
//              OSDI 2020; M. Li et al., Scaling Distributed Machine Learning with the Parameter
//              Server, OSDI 2014. The stages, and partitions of 4096000 bytes: BytePS' pages
//              architecture.md and env.md.
// Deviations:  stated in the descriptor.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

struct ServerOptions {
  bool node_first = true;
  bool dedicated = false;     // servers have machines of their own
  std::size_t servers = 0;    // number of dedicated servers; 0: one for each node
  std::size_t partition = 0;  // elements, at least 1

  static ServerOptions Of(const Options& resolved) {
    return {BoolOption(resolved, "node_first"), BoolOption(resolved, "dedicated"),
            static_cast<std::size_t>(IntOption(resolved, "servers")),
            static_cast<std::size_t>(IntOption(resolved, "partition_bytes")) / sizeof(float)};
  }
};

// A run of elements.
struct ServerPart {
  std::size_t begin = 0;
  std::size_t size = 0;

  // The i-th of `parts` parts of this run, as equal as possible; no part is larger than the last.
  ServerPart Of(std::size_t parts, std::size_t i) const {
    const std::size_t from = size * i / parts;
    return {begin + from, size * (i + 1) / parts - from};
  }
};

// Ranks as rows of nodes: `local` ranks split a partition, then `columns` ranks split a share of
// it.
struct ServerGrid {
  std::size_t local = 1;
  std::size_t columns = 1;

  // With node_first: nodes are full.
  static ServerGrid Of(bool node_first, const Topology& topology) {
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    const auto local = std::min(ranks, static_cast<std::size_t>(topology.ranks_per_node));
    return node_first ? ServerGrid{local, ranks / local} : ServerGrid{1, ranks};
  }
  std::size_t ranks() const { return local * columns; }
  std::size_t LocalOf(std::size_t rank) const { return rank % local; }
  std::size_t ColumnOf(std::size_t rank) const { return rank / local; }
  std::size_t RankOf(std::size_t column, std::size_t of_node) const {
    return column * local + of_node;
  }
  // The share of a partition that a rank sums before it pushes.
  ServerPart ShareOf(const ServerPart& partition, std::size_t rank) const {
    return partition.Of(local, LocalOf(rank));
  }
};

enum class ServerStage : std::uint8_t { kReduce, kPush, kPull, kDistribute };
constexpr ServerStage kServerStages[] = {ServerStage::kReduce, ServerStage::kPush,
                                         ServerStage::kPull, ServerStage::kDistribute};
constexpr std::size_t kServerStageCount = std::size(kServerStages);
constexpr bool IsInNode(ServerStage stage) {
  return stage == ServerStage::kReduce || stage == ServerStage::kDistribute;
}
constexpr bool AddsUp(ServerStage stage) {
  return stage == ServerStage::kReduce || stage == ServerStage::kPush;
}

struct ServerPartitions {
  std::size_t elements = 0;
  std::size_t each = 1;  // elements of every partition but the last

  std::size_t count() const { return (elements + each - 1) / each; }
  ServerPart operator[](std::size_t i) const {
    return {i * each, std::min(each, elements - i * each)};
  }
  std::size_t steps() const { return elements == 0 ? 0 : count() + kServerStageCount - 1; }
  // The partition that is at a stage in a step, if any.
  std::optional<std::size_t> At(ServerStage stage, std::size_t step) const {
    const auto behind = static_cast<std::size_t>(stage);
    if (step < behind || step - behind >= count()) return std::nullopt;
    return step - behind;
  }
};

using Requests = std::vector<std::unique_ptr<Request>>;

// One run on one rank. The ranks are the servers.
class ServerExchange {
 public:
  ServerExchange(const ServerOptions& options, Communicator& communicator, std::span<float> data,
                 int tag)
      : communicator_(communicator),
        data_(data),
        tag_(tag),
        grid_(ServerGrid::Of(options.node_first, communicator.topology())),
        partitions_{data.size(), options.partition},
        rank_(static_cast<std::size_t>(communicator.rank())) {
    const ServerPart share = partitions_[0].Of(grid_.local, grid_.local - 1);
    const ServerPart part = share.Of(grid_.columns, grid_.columns - 1);
    from_node_.resize((grid_.local - 1) * share.size);
    from_workers_.resize((grid_.columns - 1) * part.size);
  }

  Task Run() {
    for (std::size_t step = 0; step < partitions_.steps(); ++step) {
      incoming_.clear();
      Requests receives, sends;
      for (const ServerStage stage : kServerStages) {
        if (const auto partition = partitions_.At(stage, step)) {
          Post(stage, partitions_[*partition], receives, sends);
        }
      }
      std::ranges::move(sends, std::back_inserter(receives));
      if (receives.empty()) continue;
      receives = co_await Complete(std::move(receives));
      CheckIncoming(receives);
      if (const auto partition = partitions_.At(ServerStage::kReduce, step)) {
        Add(from_node_, grid_.local, grid_.ShareOf(partitions_[*partition], rank_));
      }
      if (const auto partition = partitions_.At(ServerStage::kPush, step)) {
        Add(from_workers_, grid_.columns,
            grid_.ShareOf(partitions_[*partition], rank_).Of(grid_.columns, grid_.ColumnOf(rank_)));
      }
    }
  }

 private:
  std::span<float> At(const ServerPart& part) const { return data_.subspan(part.begin, part.size); }
  // Returns the room for the i-th peer's values of a part that is added up here.
  static std::span<float> Slot(std::vector<float>& room, std::size_t i, const ServerPart& part) {
    return std::span(room).subspan(i * part.size, part.size);
  }

  // Peers send each other parts to be added up, or each sends its own sums.
  void Post(ServerStage stage, const ServerPart& partition, Requests& receives, Requests& sends) {
    const bool in_node = IsInNode(stage);
    const ServerPart all = in_node ? partition : grid_.ShareOf(partition, rank_);
    const std::size_t peers = in_node ? grid_.local : grid_.columns;
    const std::size_t own = in_node ? grid_.LocalOf(rank_) : grid_.ColumnOf(rank_);
    const ServerPart mine = all.Of(peers, own);
    std::size_t slot = 0;
    for (std::size_t i = 0; i < peers; ++i) {
      if (i == own) continue;
      const std::size_t peer =
          in_node ? grid_.RankOf(grid_.ColumnOf(rank_), i) : grid_.RankOf(i, grid_.LocalOf(rank_));
      const ServerPart theirs = all.Of(peers, i);
      if (AddsUp(stage)) {
        Receive(peer, stage, Slot(in_node ? from_node_ : from_workers_, slot++, mine), receives);
        Send(peer, stage, At(theirs), sends);
      } else {
        Receive(peer, stage, At(theirs), receives);
        Send(peer, stage, At(mine), sends);
      }
    }
  }
  int TagOf(ServerStage stage) const { return tag_ + static_cast<int>(stage); }
  void Receive(std::size_t from, ServerStage stage, std::span<float> into, Requests& receives) {
    if (into.empty()) return;
    receives.push_back(
        communicator_.Irecv(static_cast<int>(from), TagOf(stage), std::as_writable_bytes(into)));
    incoming_.push_back(into.size_bytes());
  }
  void Send(std::size_t to, ServerStage stage, std::span<const float> part, Requests& sends) {
    if (part.empty()) return;
    sends.push_back(communicator_.Isend(static_cast<int>(to), TagOf(stage), std::as_bytes(part)));
  }

  // The receives come first in `requests`.
  void CheckIncoming(const Requests& requests) const {
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      if (requests[i]->bytes() == incoming_[i]) continue;
      SPARFUSE_THROW(kComm, "parameter-server: part of ", requests[i]->bytes(), " bytes from rank ",
                     requests[i]->peer(), ": expected ", incoming_[i],
                     "; ranks disagree on the length of the buffer");
    }
  }

  // Adds to this rank's own values in the order of ranks: equal runs give equal bits.
  void Add(std::vector<float>& room, std::size_t peers, const ServerPart& part) {
    for (std::size_t i = 0; i + 1 < peers; ++i) AddInto(Slot(room, i, part), At(part));
  }

  Communicator& communicator_;
  std::span<float> data_;
  int tag_;
  ServerGrid grid_;
  ServerPartitions partitions_;
  std::size_t rank_;
  std::vector<float> from_node_, from_workers_;
  std::vector<std::size_t> incoming_;  // bytes of each receive
};

// Partitions' elements by stage in one step; 0: none.
using StageSizes = std::array<std::size_t, kServerStageCount>;

std::uint64_t NonEmpty(const ServerPart& run, std::size_t parts) {
  return std::min(run.size, parts);
}

// The transfers of some stages at once.
struct Moves {
  std::vector<Traffic> within, between;  // [ranks] by link class
  Traffic of_server;                     // bytes of the busiest dedicated server
  std::uint64_t added = 0;               // elements, by the busiest rank or server

  explicit Moves(std::size_t ranks) : within(ranks), between(ranks) {}
};

// Counts `sent` and `received` elements of a stage that sums. A stage that returns sums swaps them.
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
      if ((IsInNode(stage) ? grid_.local : grid_.columns) == 1) continue;  // no peer to send to
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
      // The columns on this rank's node: its own, or all columns of the node.
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
      // A rank receives from servers that only pull as many messages as it would push to them.
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

std::string OnlyModelled(const Options& resolved) {
  return BoolOption(resolved, "dedicated")
             ? "dedicated = true: servers on machines of their own exist only in models, since "
               "every process here is a rank that trains; expected false, or mode = \"modelled\""
             : "";
}

class ParameterServers final : public Collective {
 public:
  explicit ParameterServers(const Options& resolved)
      : options_(ServerOptions::Of(resolved)), why_not_run_(OnlyModelled(resolved)) {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    if (!why_not_run_.empty()) SPARFUSE_THROW(kUnsupported, "parameter-server: ", why_not_run_);
    if (communicator.size() == 1) co_return;
    ServerExchange exchange(options_, communicator, buffers.dense, tag);
    co_await exchange.Run();
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return ServerRounds(options_, sizes.payload_bytes.front() / sizeof(float), topology).Rounds();
  }

 private:
  ServerOptions options_;
  std::string why_not_run_;
};

}  // namespace

CollectiveDescriptor ParameterServer() {
  return {
      .name = "parameter-server",
      .source = "Jiang et al., BytePS, OSDI 2020; Li et al., OSDI 2014",
      .revision = 1,
      .payload = PayloadKind::kDense,
      .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
        return std::make_unique<ParameterServers>(resolved);
      },
      .host_memory = true,
      .options =
          {WholeOption(
               "partition_bytes", 4096000, 4, 1e9,
               "dense bytes of a partition; partitions are pushed and pulled one after the other"),
           FlagOption("node_first", true,
                      "the ranks of a node first sum their gradients, then each pushes and pulls a "
                      "share of the sum"),
           FlagOption(
               "dedicated", false,
               "servers have machines of their own, with the network of a node: modelled only"),
           WholeOption("servers", 0, 0, 65536,
                       "dedicated servers; 0: one for each node of workers")},
      .refuses = [](const Options& resolved, const Topology& topology) -> std::string {
        const bool uneven = topology.ranks % std::min(topology.ranks, topology.ranks_per_node) != 0;
        return uneven && BoolOption(resolved, "node_first")
                   ? "needs equally many ranks on every node to add up within nodes first"
                   : "";
      },
      .only_modelled = OnlyModelled,
      .summary = "dense sums at servers: ranks push gradients and pull sums",
      .deviations =
          "A partition is shared out evenly among all servers; BytePS gives each partition to one "
          "server by a hash, which has the same effect over many partitions but not over few. In a "
          "node, ranks send one another their shares; BytePS sends them around NCCL's rings and "
          "copies them to host memory to push them. Partitions go in the order of the buffer, "
          "without priorities. A model times sums of a dedicated server like sums of a rank."};
}

}  // namespace sparfuse
