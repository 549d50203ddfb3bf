// Runs Zen's balanced parallelism: a hash distributes every rank's elements among P servers. Each
// server sums its elements in rank order, and gives the sums to all.
//
// Source:      Z. Wang, Z. Xu, J. Xi, Y. Wang, A. Shrivastava, T. S. E. Ng, Zen: empowering
//              distributed training with sparsity-driven data synchronization, OSDI 2025
//              (balanced parallelism, hierarchical hashing, hash bitmap).
// Deviations:  stated in the descriptor.
//
//   push    all to all: indices and values, (P - 1) / P * 8 k bytes a rank on average
//   sum     at the server, into a dense accumulator over the server's list of indices
//   pull    all to all: per server a head and a body (hash_lists.hpp)
//
// With node-first aggregation the ranks of a node come first: each sums a g-th of the elements, by
// the same hash. Then the ranks of equal local rank do the above. Each rank forwards the pulled
// sums to the ranks of its node.
#include "baselines/zen/zen.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "baselines/zen/hash_lists.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {
namespace {

struct ZenOptions {
  ZenBalance balance = ZenBalance::kHash;
  FormChoice form = FormChoice::kAuto;
  bool node_first = false;
  bool hierarchical = false;  // parts are found by hierarchical hashing (hash_lists.hpp)
  double slots_per_element = 2;
  double serial_part = 0.1;
  int probes = 3;
};

// The state of one range: the lists, and memory that is reused from step to step.
struct ZenState final : CollectiveState {
  ZenState(const ZenOptions& options, std::size_t ranks)
      : lists(options.balance == ZenBalance::kHash ? SharedHashLists::Of(ranks) : nullptr) {}

  std::shared_ptr<SharedHashLists> lists;  // null: contiguous ranges
  std::vector<std::uint32_t> part_of;
  std::vector<std::uint32_t> slots;
  Parts parts;
  SparseSums node_sum;
  SparseSums merged;
  RangeSums sums;
};

// Holds the sums of all servers on one rank: its own, and the received ones. Heads (hash_lists.hpp)
// lie in buffers.kept. Payloads fill buffers.gathered one after another, in the order in which they
// are placed; over all servers they have no more elements than all ranks have sent.
class ServerSums {
 public:
  // Both arguments must outlive it. Grows buffers.kept.
  ServerSums(const Servers& servers, ExchangeBuffers& buffers)
      : servers_(servers), buffers_(buffers), sums_(servers.count()) {
    std::size_t room = 0;
    for (std::size_t s = 0; s < sums_.size(); ++s) {
      sums_[s].list = servers.Size(s);
      sums_[s].head_begin = room;
      room += HeadBytes(IndexForm::kBitmap, sums_[s].list);
    }
    buffers.Keep(room);
  }

  // Makes head and payload of the sums over a server's positions, and overwrites buffers.gathered.
  // Returns the head.
  const SumsHead& Write(std::size_t server, const RangeSums& sums, FormChoice choice) {
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

  // Memory for a head to be received. Once `bytes` of it are there, Place makes room for the body.
  std::span<std::byte> HeadRoom(std::size_t server) const {
    const Sums& sums = sums_[server];
    return buffers_.kept.host().subspan(sums.head_begin, HeadBytes(IndexForm::kBitmap, sums.list));
  }
  void Place(std::size_t server, std::size_t bytes) {
    Sums& sums = sums_[server];
    sums.head = HeadRoom(server).first(bytes);
    sums.read = ReadHead(sums.head, server, sums.list);
    sums.payload = RoomFor(sums.read.count);
    sums.complete = sums.read.form == IndexForm::kCoo;
  }
  void CheckBody(std::size_t server, std::size_t bytes) const {
    if (bytes == Body(server).size()) return;
    SPARFUSE_THROW(kComm, "zen: the sums of server " + std::to_string(server) + " are " +
                              std::to_string(bytes) + " bytes: expected " +
                              std::to_string(Body(server).size()));
  }

  // Head and body of a server whose sums are written or placed.
  std::span<const std::byte> Head(std::size_t server) const { return sums_[server].head; }
  std::span<std::byte> Body(std::size_t server) const {
    const Sums& sums = sums_[server];
    return sums.payload.last(BodyBytes(sums.read.form, sums.read.count));
  }

  // Call when all sums are there: completes the indices, and appends the payloads in the order of
  // servers.
  void DecodeInto(std::vector<std::span<const std::byte>>& payloads) const {
    for (std::size_t s = 0; s < sums_.size(); ++s) {
      const Sums& sums = sums_[s];
      payloads.emplace_back(sums.payload);
      if (sums.complete) continue;
      auto* const indices = reinterpret_cast<std::uint32_t*>(sums.payload.data());
      DecodeBitmap(sums.read.bitmap, servers_, s, {indices, sums.read.count});
    }
  }

 private:
  struct Sums {
    std::size_t list = 0;        // elements that are the server's
    std::size_t head_begin = 0;  // in `kept`
    bool complete = false;       // the payload has its indices, too
    std::span<const std::byte> head;
    SumsHead read;
    std::span<std::byte> payload;
  };
  std::span<std::byte> RoomFor(std::size_t count) {
    const std::size_t bytes = count * kSparseElementBytes;
    if (bytes > buffers_.gathered.size() - placed_) {
      SPARFUSE_THROW(kComm, "zen: servers announce more sums than ranks can have sent");
    }
    placed_ += bytes;
    return buffers_.gathered.subspan(placed_ - bytes, bytes);
  }

  const Servers& servers_;
  ExchangeBuffers& buffers_;
  std::vector<Sums> sums_;
  std::size_t placed_ = 0;  // bytes of `gathered` in use
};

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
    co_await OffThread(buffers_, [this] { Prepare(); });
    if (grid_.local > 1) co_await AggregateInNode();
    co_await Push();
    co_await OffThread(buffers_, [this] { SumUp(); });
    const std::vector<std::size_t> own = {rank_};
    const std::vector<Peer> column = ColumnPeers();
    co_await Share(own, column, kPullTag);
    if (grid_.local > 1) {
      const std::vector<std::size_t> pulled = Column(Local());
      const std::vector<Peer> node = NodePeers();
      co_await Share(pulled, node, kDistributeTag);
    }
    co_await OffThread(buffers_, [this] { sums_->DecodeInto(buffers_.payloads); });
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
  std::vector<Peer> ColumnPeers() const {
    std::vector<Peer> peers;
    for (const std::size_t server : Column(Local())) {
      if (server != rank_) peers.push_back({static_cast<int>(server), {server}});
    }
    return peers;
  }

  std::vector<Peer> NodePeers() const {
    std::vector<Peer> peers;
    for (std::size_t l = 0; l < grid_.local; ++l) {
      if (l != Local()) peers.push_back({static_cast<int>(rank_ - Local() + l), Column(l)});
    }
    return peers;
  }

  // Returns room for the i-th message, each at most the sum of `payloads` payloads.
  std::span<std::byte> Slot(std::size_t i, std::size_t payloads) const {
    const std::size_t bytes = payloads * buffers_.capacity_bytes;
    return buffers_.gathered.subspan(i * bytes, bytes);
  }

  void Prepare() {
    const std::size_t elements = buffers_.shape.elements;
    servers_.emplace(elements, grid_.ranks,
                     state_.lists == nullptr ? nullptr : state_.lists->Covering(elements));
    sums_.emplace(*servers_, buffers_);
  }

  // Splits into parts by the ranks of a node, or by nodes.
  void Split(const SparsePayload& from, std::size_t parts, bool by_node) {
    std::vector<std::uint32_t>& part_of = state_.part_of;
    part_of.resize(from.indices.size());
    servers_->Find(from.indices, part_of);
    const auto local = static_cast<std::uint32_t>(grid_.local);
    if (local > 1) {
      for (std::uint32_t& part : part_of) part = by_node ? part / local : part % local;
    }
    if (!options_.hierarchical) return SplitByCounting(from, part_of, parts, state_.parts);
    const HashRegions regions =
        HashRegions::For(from.indices.size(), parts, options_.slots_per_element,
                         options_.serial_part, options_.probes);
    SplitByHashing(from, part_of, parts, regions, state_.slots, state_.parts);
  }

  // Sends part i to peers[i] and receives a payload from it into received_[i]. `own` is this rank's
  // place among the peers.
  Task AllToAll(const std::vector<std::size_t>& peers, std::size_t own, std::size_t payloads,
                int tag) {
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

  Task AggregateInNode() {
    std::vector<std::size_t> node(grid_.local);
    std::iota(node.begin(), node.end(), rank_ - Local());
    co_await OffThread(buffers_,
                       [this] { Split(ViewSparsePayload(buffers_.own), grid_.local, false); });
    co_await AllToAll(node, Local(), 1, kLocalTag);
    co_await OffThread(buffers_, [this] { SumNode(); });
  }

  void SumNode() {
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

  Task Push() {
    const std::vector<std::size_t> column = Column(Local());
    co_await OffThread(buffers_, [this] {
      const SparsePayload from =
          grid_.local > 1 ? state_.node_sum.view() : ViewSparsePayload(buffers_.own);
      sizes_.node_sum = from.indices.size();
      Split(from, grid_.nodes(), true);
    });
    co_await AllToAll(column, Node(), grid_.local, kPushTag);
  }

  // Adds up in rank order. Indices become positions in the server's list, in place.
  void SumUp() {
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
      if (communicator_.topology().LinkBetween(communicator_.rank(), peer) ==
          LinkClass::kIntraNode) {
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
  Task Share(const std::vector<std::size_t>& mine, const std::vector<Peer>& peers, int tag) {
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

ZenOptions OptionsOf(const Options& resolved) {
  const std::string& form = StringOption(resolved, "index_form");
  ZenOptions options;
  options.balance =
      StringOption(resolved, "balance") == "ranges" ? ZenBalance::kRanges : ZenBalance::kHash;
  options.form = form == "bitmap" ? FormChoice::kBitmap
                 : form == "coo"  ? FormChoice::kCoo
                                  : FormChoice::kAuto;
  options.node_first = BoolOption(resolved, "node_first");
  options.hierarchical = StringOption(resolved, "partition") == "hierarchical";
  options.slots_per_element = DoubleOption(resolved, "slots_per_element");
  options.serial_part = DoubleOption(resolved, "serial_part");
  options.probes = static_cast<int>(IntOption(resolved, "probes"));
  return options;
}

class Zen final : public Collective {
 public:
  explicit Zen(const ZenOptions& options) : options_(options) {}

  // Makes the lists, too, as they take long for a long range.
  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology& topology) const override {
    auto state = std::make_unique<ZenState>(options_, static_cast<std::size_t>(topology.ranks));
    if (topology.ranks > 1 && state->lists != nullptr) state->lists->Covering(shape.elements);
    return state;
  }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    CheckGatherBuffers("zen", buffers, ranks);
    if (ranks == 1) {
      ZenSizes sizes;
      sizes.node_sum = sizes.summed = buffers.own.size() / kSparseElementBytes;
      buffers.payloads.assign(1, buffers.own);
      buffers.seen = sizes.Words();
      co_return;
    }
    std::unique_ptr<ZenState> own;
    auto* state = static_cast<ZenState*>(buffers.state);
    if (state == nullptr) {
      own = std::make_unique<ZenState>(options_, ranks);
      state = own.get();
    }
    ZenExchange exchange(options_, communicator, buffers, *state, tag);
    co_await exchange.Run();
  }

  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override {
    const ZenGrid grid = ZenGrid::Of(options_.node_first, topology);
    for (const ZenSizes& rank :
         ExpectedZenSizes(sizes, overlap, topology, grid, options_.balance, options_.form)) {
      sizes.seen.push_back(rank.Words());
    }
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return ZenRounds(ZenGrid::Of(options_.node_first, topology), sizes, topology);
  }

 private:
  ZenOptions options_;
};

std::string RefusesZen(const Options& resolved, const Topology& topology) {
  const bool ragged = topology.nodes() > 1 && topology.ranks % topology.ranks_per_node != 0;
  if (!BoolOption(resolved, "node_first") || !ragged) return "";
  return "with node_first needs equally many ranks on every node: ranks of equal local rank sum "
         "one part of the elements, but the last node lacks some";
}

}  // namespace

CollectiveDescriptor ZenCollective() {
  return {
      .name = "zen",
      .source = "Wang et al., Zen, OSDI 2025",
      .revision = 1,
      .payload = PayloadKind::kSparse,
      .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
        return std::make_unique<Zen>(OptionsOf(resolved));
      },
      .host_memory = true,
      .options =
          {ChoiceOption(
               "balance", "hash", {"hash", "ranges"},
               "server that sums an element: by a hash of its index, or by contiguous ranges, "
               "as a sparse parameter server"),
           ChoiceOption(
               "index_form", "auto", {"auto", "bitmap", "coo"},
               "code of the indices of a server's sums: a bitmap over its list, indices, or for "
               "each server the smaller of the two"),
           ChoiceOption(
               "partition", "counting", {"counting", "hierarchical"},
               "how a rank splits its elements: by counting, or by hierarchical hashing as on "
               "a device; the parts are equal"),
           FlagOption("node_first", false, "the ranks of a node aggregate before servers do"),
           NumberOption(
               "slots_per_element", 2.0, 0.1, 100,
               "with hierarchical hashing: slots of a parallel region for each of its elements"),
           NumberOption(
               "serial_part", 0.1, 0.001, 10,
               "with hierarchical hashing: slots of a serial region for each slot of a parallel "
               "region"),
           WholeOption("probes", 3, 1, kMostProbes,
                       "with hierarchical hashing: slots that an element tries")},
      .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
      .refuses = RefusesZen,
      .summary = "balanced parallelism: servers by a hash of the index, hash bitmaps with the sums",
      .deviations =
          "Constants of the hierarchical hashing are options, with the paper's values as we "
          "remember them. On the host, parts are found by counting, which is faster. A serial "
          "region that overflows is doubled and the split done again, which the paper leaves open. "
          "The hash is simple tabulation; the paper asks for a universal one. A server's head and "
          "its values are two messages. A server sends a bitmap if it has sums for more than 1 of "
          "32 of its elements, else indices. Within nodes each rank sums a part by the same hash, "
          "sparse."};
}

}  // namespace sparfuse::baselines
