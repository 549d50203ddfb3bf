// Runs Zen's balanced parallelism: a hash distributes every rank's elements among P servers. Each
// server sums its elements in rank order, and gives the sums to all.
//
// Source:      Z. Wang, Z. Xu, J. Xi, Y. Wang, A. Shrivastava, T. S. E. Ng, Zen: empowering
//              distributed training with sparsity-driven data synchronization, OSDI 2025
//              (balanced parallelism, hierarchical hashing, hash bitmap).
// Deviations:  stated in the descriptor (zen.cpp).
//
//   push    all to all: indices and values, (P - 1) / P * 8 k bytes a rank on average
//   sum     at the server, into a dense accumulator over the server's list of indices
//   pull    all to all: per server a head and a body (hash_lists.hpp)
//
// With node-first aggregation the ranks of a node come first: each sums a g-th of the elements, by
// the same hash. Then the ranks of equal local rank do the above. Each rank forwards the pulled
// sums to the ranks of its node.
#include "baselines/zen/zen_exchange.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "baselines/zen/zen_sizes.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"

namespace sparfuse::baselines {

ServerSums::ServerSums(const Servers& servers, ExchangeBuffers& buffers)
    : servers_(servers), buffers_(buffers), sums_(servers.count()) {
  std::size_t room = 0;
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    sums_[s].list = servers.Size(s);
    sums_[s].head_begin = room;
    room += HeadBytes(IndexForm::kBitmap, sums_[s].list);
  }
  buffers.Keep(room);
}

std::span<std::byte> ServerSums::HeadRoom(std::size_t server) const {
  const Sums& sums = sums_[server];
  return buffers_.kept.host().subspan(sums.head_begin, HeadBytes(IndexForm::kBitmap, sums.list));
}

std::span<std::byte> ServerSums::RoomFor(std::size_t count) {
  const std::size_t bytes = count * kSparseElementBytes;
  if (bytes > buffers_.gathered.size() - placed_) {
    SPARFUSE_THROW(kComm, "zen: servers announce more sums than ranks can have sent");
  }
  placed_ += bytes;
  return buffers_.gathered.subspan(placed_ - bytes, bytes);
}

const SumsHead& ServerSums::Write(std::size_t server, const RangeSums& sums, FormChoice choice) {
  Sums& own = sums_[server];
  const std::size_t count = sums.count();
  const IndexForm form = FormOf(choice, own.list, count);
  own.head = WriteHead(form, own.list, count, sums.added(), HeadRoom(server));
  own.read = {form, count, own.head.subspan(kSumsHeaderBytes)};
  own.payload = RoomFor(count);
  own.complete = true;
  auto* index = reinterpret_cast<std::uint32_t*>(own.payload.data());
  auto* value = reinterpret_cast<float*>(index + count);
  const std::span<const std::uint64_t> added = sums.added();
  for (std::size_t w = 0; w < added.size(); ++w) {
    for (std::uint64_t word = added[w]; word != 0; word &= word - 1) {
      const std::size_t position = 64 * w + static_cast<std::size_t>(std::countr_zero(word));
      *index++ = servers_.IndexAt(server, position);
      *value++ = sums.dense()[position];
    }
  }
  return own.read;
}

void ServerSums::Place(std::size_t server, std::size_t bytes) {
  Sums& sums = sums_[server];
  sums.head = HeadRoom(server).first(bytes);
  sums.read = ReadHead(sums.head, server, sums.list);
  sums.payload = RoomFor(sums.read.count);
  sums.complete = sums.read.form == IndexForm::kCoo;
}

void ServerSums::CheckBody(std::size_t server, std::size_t bytes) const {
  if (bytes == Body(server).size()) return;
  SPARFUSE_THROW(kComm, "zen: the sums of server " + std::to_string(server) + " are " +
                            std::to_string(bytes) + " bytes: expected " +
                            std::to_string(Body(server).size()));
}

void ServerSums::DecodeInto(std::vector<std::span<const std::byte>>& payloads) const {
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    const Sums& sums = sums_[s];
    payloads.emplace_back(sums.payload);
    if (sums.complete) continue;
    auto* const indices = reinterpret_cast<std::uint32_t*>(sums.payload.data());
    DecodeBitmap(sums.read.bitmap, servers_, s, {indices, sums.read.count});
  }
}

namespace {

constexpr int kLocalTag = 0;  // offsets in the exchange's block of tags
constexpr int kPushTag = 1;
constexpr int kPullTag = 2;        // of heads; bodies: the next tag
constexpr int kDistributeTag = 4;  // of heads; bodies: the next tag

// A rank that sends the sums of these servers, and receives others.
struct Peer {
  int rank = 0;
  std::vector<std::size_t> servers;
};

// The state of one run on one rank.
class ZenExchange {
 public:
  ZenExchange(const ZenOptions& options, Communicator& communicator, ExchangeBuffers& buffers,
              ZenState& state, int tag)
      : options_(options),
        communicator_(communicator),
        buffers_(buffers),
        state_(state),
        tag_(tag),
        grid_(ZenGrid::Of(options.node_first, communicator.topology())),
        rank_(static_cast<std::size_t>(communicator.rank())) {}

  Task Run() {
    const std::function<void()> prepare = [this] { Prepare(); };
    const std::function<void()> sum_up = [this] { SumUp(); };
    const std::function<void()> decode = [this] { sums_->DecodeInto(buffers_.payloads); };
    co_await OffThread(buffers_, prepare);
    if (grid_.local > 1) co_await AggregateInNode();
    co_await Push();
    co_await OffThread(buffers_, sum_up);
    const std::vector<std::size_t> own = {rank_};
    const std::vector<Peer> column = ColumnPeers();
    co_await Share(own, column, kPullTag);
    if (grid_.local > 1) {
      const std::vector<std::size_t> pulled = Column(Local());
      const std::vector<Peer> node = NodePeers();
      co_await Share(pulled, node, kDistributeTag);
    }
    co_await OffThread(buffers_, decode);
    buffers_.seen = sizes_.Words();
    buffers_.served = sizes_.Kept() + sizes_.in;
  }

 private:
  std::size_t Local() const { return rank_ % grid_.local; }
  std::size_t Node() const { return rank_ / grid_.local; }
  std::vector<std::size_t> Column(std::size_t local) const {
    std::vector<std::size_t> servers;
    for (std::size_t s = local; s < grid_.ranks; s += grid_.local) servers.push_back(s);
    return servers;
  }
  std::vector<Peer> ColumnPeers() const;
  std::vector<Peer> NodePeers() const;
  // Returns room for the i-th message, each at most the sum of `payloads` payloads.
  std::span<std::byte> Slot(std::size_t i, std::size_t payloads) const {
    const std::size_t bytes = payloads * buffers_.capacity_bytes;
    return buffers_.gathered.subspan(i * bytes, bytes);
  }

  void Prepare();
  void Split(const SparsePayload& from, std::size_t parts, bool by_node);
  Task AllToAll(const std::vector<std::size_t>& peers, std::size_t own, std::size_t payloads,
                int tag);
  Task AggregateInNode();
  void SumNode();
  Task Push();
  void SumUp();
  Task Share(const std::vector<std::size_t>& mine, const std::vector<Peer>& peers, int tag);

  const ZenOptions& options_;
  Communicator& communicator_;
  ExchangeBuffers& buffers_;
  ZenState& state_;
  int tag_;
  ZenGrid grid_;
  std::size_t rank_;
  std::optional<Servers> servers_;
  std::optional<ServerSums> sums_;
  std::vector<std::span<std::byte>> received_;  // by peer of AllToAll; empty at the own place
  ZenSizes sizes_;
};

std::vector<Peer> ZenExchange::ColumnPeers() const {
  std::vector<Peer> peers;
  for (const std::size_t server : Column(Local())) {
    if (server != rank_) peers.push_back({static_cast<int>(server), {server}});
  }
  return peers;
}

std::vector<Peer> ZenExchange::NodePeers() const {
  std::vector<Peer> peers;
  for (std::size_t l = 0; l < grid_.local; ++l) {
    if (l != Local()) peers.push_back({static_cast<int>(rank_ - Local() + l), Column(l)});
  }
  return peers;
}

void ZenExchange::Prepare() {
  const std::size_t elements = buffers_.shape.elements;
  servers_.emplace(elements, grid_.ranks,
                   state_.lists == nullptr ? nullptr : state_.lists->Covering(elements));
  sums_.emplace(*servers_, buffers_);
}

// Splits into parts by the ranks of a node, or by nodes.
void ZenExchange::Split(const SparsePayload& from, std::size_t parts, bool by_node) {
  std::vector<std::uint32_t>& part_of = state_.part_of;
  part_of.resize(from.indices.size());
  servers_->Find(from.indices, part_of);
  const auto local = static_cast<std::uint32_t>(grid_.local);
  if (local > 1) {
    for (std::uint32_t& part : part_of) part = by_node ? part / local : part % local;
  }
  if (!options_.hierarchical) return SplitByCounting(from, part_of, parts, state_.parts);
  const HashRegions regions =
      HashRegions::For(from.indices.size(), parts, options_.slots_per_element, options_.serial_part,
                       options_.probes);
  SplitByHashing(from, part_of, parts, regions, state_.slots, state_.parts);
}

// Sends part i to peers[i] and receives a payload from it into received_[i]. `own` is this rank's
// place among the peers.
Task ZenExchange::AllToAll(const std::vector<std::size_t>& peers, std::size_t own,
                           std::size_t payloads, int tag) {
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::size_t> others;
  for (std::size_t step = 1; step < peers.size(); ++step) {
    const std::size_t from = (own + step) % peers.size();
    others.push_back(from);
    requests.push_back(
        communicator_.Irecv(static_cast<int>(peers[from]), tag_ + tag, Slot(from, payloads)));
  }
  for (const std::size_t to : others) {
    requests.push_back(
        communicator_.Isend(static_cast<int>(peers[to]), tag_ + tag, state_.parts.Bytes(to)));
  }
  requests = co_await Complete(std::move(requests));
  received_.assign(peers.size(), {});
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::size_t bytes = requests[i]->bytes();
    CheckPayloadBytes("zen", buffers_, peers[others[i]], bytes);
    received_[others[i]] = Slot(others[i], payloads).first(bytes);
  }
}

Task ZenExchange::AggregateInNode() {
  const std::function<void()> split = [this] {
    Split(ViewSparsePayload(buffers_.own), grid_.local, false);
  };
  const std::function<void()> sum = [this] { SumNode(); };
  std::vector<std::size_t> node(grid_.local);
  std::iota(node.begin(), node.end(), rank_ - Local());
  co_await OffThread(buffers_, split);
  co_await AllToAll(node, Local(), 1, kLocalTag);
  co_await OffThread(buffers_, sum);
}

void ZenExchange::SumNode() {
  SparseSums& sum = state_.node_sum;
  sum.Clear();
  for (std::size_t l = 0; l < grid_.local; ++l) {  // in rank order
    const bool own = l == Local();
    const SparsePayload part = own ? state_.parts.View(l) : ViewSparsePayload(received_[l]);
    if (!own) {
      sizes_.local_out += state_.parts.Count(l);
      sizes_.local_in += part.indices.size();
    }
    if (l > 0) sizes_.local_merged += sum.size() + part.indices.size();
    Merge(sum.view(), part, state_.merged);
    std::swap(sum, state_.merged);
  }
}

Task ZenExchange::Push() {
  const std::function<void()> split = [this] {
    const SparsePayload from =
        grid_.local > 1 ? state_.node_sum.view() : ViewSparsePayload(buffers_.own);
    sizes_.node_sum = from.indices.size();
    Split(from, grid_.nodes(), true);
  };
  const std::vector<std::size_t> column = Column(Local());
  co_await OffThread(buffers_, split);
  co_await AllToAll(column, Node(), grid_.local, kPushTag);
}

// Adds up in rank order. Indices become positions in the server's list, in place.
void ZenExchange::SumUp() {
  RangeSums& sums = state_.sums;
  sums.Reset(0, servers_->Size(rank_));
  for (std::size_t m = 0; m < grid_.nodes(); ++m) {
    if (m == Node()) {
      servers_->ToPositions(rank_, state_.parts.Indices(m));
      sums.Add(state_.parts.View(m));
      continue;
    }
    const std::size_t count = received_[m].size() / kSparseElementBytes;
    auto* const indices = reinterpret_cast<std::uint32_t*>(received_[m].data());
    servers_->ToPositions(rank_, {indices, count});
    sums.Add(ViewSparsePayload(received_[m]));
    sizes_.out += state_.parts.Count(m);
    sizes_.in += count;
    const auto peer = static_cast<int>(m * grid_.local + Local());
    if (communicator_.topology().LinkBetween(communicator_.rank(), peer) == LinkClass::kIntraNode) {
      continue;
    }
    sizes_.off_node_out += state_.parts.Count(m);
    sizes_.off_node_in += count;
  }
  const SumsHead head = sums_->Write(rank_, sums, options_.form);
  sizes_.summed = head.count;
  sizes_.bitmap_bytes = head.bitmap.size();
}

// Sends the sums of the servers `mine` to the peers, and receives theirs. All heads go first: a
// body is received once its head has told its place.
Task ZenExchange::Share(const std::vector<std::size_t>& mine, const std::vector<Peer>& peers,
                        int tag) {
  std::vector<std::unique_ptr<Request>> heads;
  std::vector<std::unique_ptr<Request>> rest;
  for (const Peer& from : peers) {
    for (const std::size_t s : from.servers) {
      heads.push_back(communicator_.Irecv(from.rank, tag_ + tag, sums_->HeadRoom(s)));
    }
  }
  for (const Peer& to : peers) {
    for (const std::size_t s : mine) {
      rest.push_back(communicator_.Isend(to.rank, tag_ + tag, sums_->Head(s)));
    }
  }
  for (const Peer& to : peers) {
    for (const std::size_t s : mine) {
      rest.push_back(communicator_.Isend(to.rank, tag_ + tag + 1, sums_->Body(s)));
    }
  }
  const std::size_t sends = rest.size();
  heads = co_await Complete(std::move(heads));
  std::size_t next = 0;
  for (const Peer& from : peers) {
    for (const std::size_t s : from.servers) {
      sums_->Place(s, heads[next++]->bytes());
      rest.push_back(communicator_.Irecv(from.rank, tag_ + tag + 1, sums_->Body(s)));
    }
  }
  rest = co_await Complete(std::move(rest));
  next = sends;
  for (const Peer& from : peers) {
    for (const std::size_t s : from.servers) sums_->CheckBody(s, rest[next++]->bytes());
  }
}

}  // namespace

Task RunZen(const ZenOptions& options, Communicator& communicator, ExchangeBuffers& buffers,
            ZenState& state, int tag) {
  ZenExchange exchange(options, communicator, buffers, state, tag);
  co_await exchange.Run();
}

namespace {

// Bytes of one rank in a round, and their part to and from other nodes.
struct Moved {
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  std::uint64_t off_node_out = 0;
  std::uint64_t off_node_in = 0;
};

Round& AddMoves(std::span<const Moved> by_rank, std::size_t messages, LinkClass link,
                const Topology& topology, RoundPlan& plan) {
  Round round;
  round.messages = static_cast<std::uint32_t>(messages);
  round.link = link;
  std::vector<Moved> nodes(static_cast<std::size_t>(topology.nodes()));
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const Moved& moved = by_rank[r];
    round.bytes = std::max({round.bytes, moved.out, moved.in});
    plan.per_rank[r] += {messages, messages, moved.out, moved.in};
    Moved& node = nodes[static_cast<std::size_t>(topology.NodeOf(static_cast<int>(r)))];
    node.out += moved.off_node_out;
    node.in += moved.off_node_in;
  }
  for (const Moved& node : nodes) {
    round.node_bytes = std::max({round.node_bytes, node.out, node.in});
  }
  plan.rounds.push_back(round);
  return plan.rounds.back();
}

}  // namespace

RoundPlan ZenRounds(const ZenOptions& options, const ExchangeSizes& sizes,
                    const Topology& topology) {
  const ZenGrid grid = ZenGrid::Of(options.node_first, topology);
  std::vector<ZenSizes> seen;
  for (const auto& words : sizes.seen) seen.push_back(ZenSizes::Of(words));
  RoundPlan plan;
  plan.per_rank.resize(grid.ranks);
  plan.sums = 0;
  for (const ZenSizes& rank : seen) *plan.sums += rank.summed;
  if (grid.ranks == 1) return plan;

  constexpr std::uint64_t kElement = kSparseElementBytes;
  const LinkClass link = SlowestLink(topology);
  std::vector<Moved> moved(grid.ranks);
  if (grid.local > 1) {
    for (std::size_t r = 0; r < grid.ranks; ++r) {
      moved[r] = {seen[r].local_out * kElement, seen[r].local_in * kElement, 0, 0};
    }
    Round& round = AddMoves(moved, grid.local - 1, LinkClass::kIntraNode, topology, plan);
    round[Work::kHash] = *std::ranges::max_element(sizes.payload_bytes) / kElement;
    for (const ZenSizes& rank : seen) {
      round[Work::kMerge] = std::max(round[Work::kMerge], rank.local_merged);
    }
  }

  for (std::size_t r = 0; r < grid.ranks; ++r) {
    moved[r] = {seen[r].out * kElement, seen[r].in * kElement, seen[r].off_node_out * kElement,
                seen[r].off_node_in * kElement};
  }
  Round& push = AddMoves(moved, grid.nodes() - 1, link, topology, plan);
  // The server's list of sums is cleared, and scanned for the added elements.
  push[Work::kAdd] = (sizes.shape.elements + grid.ranks - 1) / grid.ranks;
  for (const ZenSizes& rank : seen) {
    push[Work::kHash] = std::max(push[Work::kHash], rank.node_sum);
    plan.served.push_back(rank.Kept() + rank.in);
    push[Work::kMerge] = std::max(push[Work::kMerge], plan.served.back());
  }

  // The output of the servers, by column and by node.
  std::vector<std::uint64_t> columns(grid.local, 0);
  std::vector<std::uint64_t> nodes(static_cast<std::size_t>(topology.nodes()), 0);
  const auto node_of = [&](std::size_t r) {
    return static_cast<std::size_t>(topology.NodeOf(static_cast<int>(r)));
  };
  std::uint64_t decoded = 0;
  for (std::size_t r = 0; r < grid.ranks; ++r) {
    columns[r % grid.local] += seen[r].PulledBytes();
    nodes[node_of(r)] += seen[r].PulledBytes();
    decoded += seen[r].bitmap_bytes > 0 ? seen[r].summed : 0;
  }
  const std::uint64_t all = std::accumulate(columns.begin(), columns.end(), std::uint64_t{0});
  for (std::size_t r = 0; r < grid.ranks; ++r) {
    const std::uint64_t own = seen[r].PulledBytes();
    const std::uint64_t peers = grid.nodes() - 1;
    moved[r] = {peers * own, columns[r % grid.local] - own, peers * own,
                columns[r % grid.local] - own};
    if (grid.local > 1) continue;  // all peers are on other nodes
    moved[r].off_node_out = (grid.ranks - RanksBeside(topology, r)) * own;
    moved[r].off_node_in = all - nodes[node_of(r)];
  }
  AddMoves(moved, 2 * (grid.nodes() - 1), link, topology, plan);
  if (grid.local > 1) {
    for (std::size_t r = 0; r < grid.ranks; ++r) {
      const std::uint64_t column = columns[r % grid.local];
      moved[r] = {(grid.local - 1) * column, all - column, 0, 0};
    }
    AddMoves(moved, 2 * grid.nodes() * (grid.local - 1), LinkClass::kIntraNode, topology, plan);
  }
  plan.rounds.back()[Work::kMerge] = decoded;
  return plan;
}

}  // namespace sparfuse::baselines
