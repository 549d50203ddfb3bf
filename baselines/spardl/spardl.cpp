// Runs SparDL: each rank of a team reduces one block of the range. Every rank that a block passes
// keeps only its k_b largest sums. Teams then compare their blocks, and all blocks are gathered.
//
// Source:      M. Zhao, Y. Yin, Y. Mao, Q. Liu, L. Chen & Y. Gao, SparDL: Distributed Deep Learning
//              Training with Efficient Sparse Communication, ICDE 2024, section III: Spar-Reduce-
//              Scatter, global residual collection, Spar-All-Gather by recursive doubling (R-SAG)
//              and by Bruck's algorithm with an adapted count (B-SAG).
// Deviations:  stated in the descriptor below.
//
// P ranks in d teams of P' = P / d neighbours, w bytes an element:
//   Spar-Reduce-Scatter  ceil(log2 P') steps, P' - 1 blocks of k_b elements a rank
//   Spar-All-Gather      ceil(log2 d) steps; Bruck: d - 1 lists of h elements, doubling: log2(d)
//   k_b all-gather (Bruck)   ceil(log2 P') steps, P' - 1 blocks
// In all 2 w k (P - d) / P bytes a rank, and the bytes between teams.
//
// A bundle of blocks is one payload with elements in increasing order: indices tell where a block
// begins, and no counts are sent. Sums are added in the order of steps and of teams. All ranks at a
// place of their teams get equal bits, and every rank gets a block's bits from its team.
#include "baselines/spardl/spardl.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/exchange_buffers.hpp"

namespace sparfuse::baselines {
namespace {

// --- sizes and work, modelled ---

class SpardlExpectation {
 public:
  SpardlExpectation(const SpardlForm& form, const OverlapModel& overlap, std::size_t ranks,
                    const ExchangeSizes& sizes)
      : form_(form),
        overlap_(overlap),
        blocks_(sizes.shape, ranks / form.teams),
        scatter_(SpardlScatterSteps(blocks_.count())) {
    const double sent = static_cast<double>(
        std::accumulate(sizes.payload_bytes.begin(), sizes.payload_bytes.end(), std::uint64_t{0}));
    const double most = static_cast<double>(ranks * sizes.shape.elements * kSparseElementBytes);
    density_ = most > 0 ? sent / most : 0;
    ExpectUnions();
  }

  const SpardlBlocks& blocks() const { return blocks_; }

  // Returns the sizes sent by the rank at this place of a team.
  std::vector<std::uint64_t> At(std::size_t place) const {
    std::vector<std::uint64_t> sent;
    for (const SpardlStep& step : scatter_) {
      const std::size_t first = (place + step.gap) % blocks_.count();
      sent.push_back(form_.lazy ? blocks_.KeptOf(first, step.blocks) : Sums(place, step));
    }
    std::size_t kept = Kept(place, unions_.front());
    if (form_.gathers_lists()) {
      const std::size_t list = std::min(kept, AdaptedCount(place));
      for (const SpardlStep& step : BruckSteps(form_.teams)) sent.push_back(step.blocks * list);
      kept = std::min(blocks_.kept(place), UnionOf(place, list));
    } else {
      for (const double doubled : doubled_) {
        sent.push_back(kept);
        kept = Kept(place, doubled);
      }
    }
    sent.push_back(kept);
    return sent;
  }

 private:
  // summed[o]: the number of ranks in the sums that a rank w cuts of block w + o. It receives sums
  // of this block that rank w - gap has cut. For that rank it is block w - gap + (o + gap).
  void ExpectUnions() {
    std::vector<std::size_t> summed(blocks_.count(), 1);
    for (const SpardlStep& step : scatter_) {
      for (std::size_t o = 0; o < step.blocks; ++o) summed[o] += summed[o + step.gap];
    }
    std::map<std::size_t, double> by_ranks;
    const auto expect = [&](std::size_t ranks) {
      const auto [entry, made] = by_ranks.try_emplace(ranks, 0);
      if (made) entry->second = overlap_.Union(density_, ranks);
      return entry->second;
    };
    for (const std::size_t ranks : summed) unions_.push_back(expect(ranks));
    for (std::size_t teams = 2; teams <= form_.teams; teams *= 2) {
      doubled_.push_back(expect(teams * blocks_.count()));
    }
  }

  std::size_t Sums(std::size_t place, const SpardlStep& step) const {
    std::size_t elements = 0;
    for (std::size_t o = step.gap; o < step.gap + step.blocks; ++o) {
      elements += Kept((place + o) % blocks_.count(), unions_[o]);
    }
    return elements;
  }

  // Returns the kept elements of a block, of which the fraction `part` is present.
  std::size_t Kept(std::size_t block, double part) const {
    const std::size_t most = blocks_.kept(block);
    if (form_.lazy) return most;
    const double there = static_cast<double>(blocks_.size(block)) * part;
    return std::min(most, static_cast<std::size_t>(std::llround(there)));
  }

  // Returns the distinct indices of all teams' lists of a block.
  std::size_t UnionOf(std::size_t block, std::size_t list) const {
    const auto size = static_cast<double>(blocks_.size(block));
    if (size == 0) return 0;
    return static_cast<std::size_t>(
        std::llround(size * overlap_.Union(static_cast<double>(list) / size, form_.teams)));
  }

  // Returns the h at which the count settles: the largest h for which lists of h elements have no
  // more than k_b distinct indices.
  std::size_t AdaptedCount(std::size_t block) const {
    const std::size_t kept = blocks_.kept(block);
    if (kept == 0) return 0;
    std::size_t low = std::max<std::size_t>(1, kept / form_.teams);
    std::size_t high = kept;
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      if (UnionOf(block, middle) <= kept) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  const SpardlForm& form_;
  const OverlapModel& overlap_;
  SpardlBlocks blocks_;
  std::vector<SpardlStep> scatter_;
  double density_ = 0;
  std::vector<double> unions_;   // by offset of a block: the fraction present at its cut
  std::vector<double> doubled_;  // by step among teams: the fraction present after it
};

// [ranks] the numbers that each rank notes (ExchangeBuffers::seen): elements that it sends in each
// step of the reduce-scatter and in each step among teams, then applied elements of its block. They
// are exact for forms that do not note sizes, and expected by the overlap model for the others.
std::vector<std::vector<std::uint64_t>> SpardlSizes(const SpardlForm& form,
                                                    const OverlapModel& overlap,
                                                    const Topology& topology,
                                                    const ExchangeSizes& sizes) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const SpardlExpectation expected(form, overlap, ranks, sizes);
  std::vector<std::vector<std::uint64_t>> seen(ranks);
  const std::size_t places = expected.blocks().count();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    seen[rank] = rank < places ? expected.At(rank) : seen[rank - places];
  }
  return seen;
}

// Adds the work of SpardlSums on a block to rounds. The work is an upper bound: all indices differ.
// `arrived`: number of arrived bundles with the block.
class SpardlWork {
 public:
  SpardlWork(const SpardlForm& form, const SpardlBlocks& blocks)
      : lazy_(form.lazy), width_(blocks.size(0)), kept_(blocks.kept(0)) {}

  void Add(std::size_t arrived, Round& round) const {
    round[Work::kMerge] += Sums(lazy_ ? arrived : arrived + 1) + kept_;
  }

  void Cut(std::size_t arrived, Round& round) const {
    if (!lazy_) {
      round[Work::kSelect] += Sums(arrived + 1);
      return;
    }
    // One pass over a dense block takes as long as adding to it, 0.25 ns an element. kSelect, the
    // examination of a list, takes 17 ns.
    round[Work::kAdd] += width_;
    if (arrived == 0) return;
    round[Work::kMerge] += Sums(arrived + 1) + Sums(arrived);
    round[Work::kSelect] += Sums(2 * arrived + 1);
  }

  void Return(std::size_t arrived, Round& round) const {
    round[Work::kMerge] += 2 * kept_ + Sums(lazy_ ? arrived : arrived + 1);
  }

  // `lists` lists of other teams are added to the own list, and the largest elements are kept.
  void Join(std::size_t lists, Round& round) const {
    round[Work::kMerge] += 2 * lists * kept_;
    round[Work::kSelect] += 2 * kept_;
  }

 private:
  std::uint64_t Sums(std::size_t bundles) const { return std::min(width_, bundles * kept_); }

  bool lazy_;
  std::uint64_t width_;
  std::uint64_t kept_;
};

class Spardl final : public Collective {
 public:
  explicit Spardl(const Options& options) : form_(FormOf(options)) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape&, const Topology&) const override {
    return std::make_unique<SpardlState>();
  }
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override {
    if (form_.notes_sizes()) sizes.seen = SpardlSizes(form_, overlap, topology, sizes);
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  void Begin(SpardlExchange& at) const;
  Task ReduceScatter(SpardlExchange& at) const;
  Task GatherLists(SpardlExchange& at) const;
  Task DoubleTeams(SpardlExchange& at) const;
  Task Gather(SpardlExchange& at) const;
  static void Finish(SpardlExchange& at);

  SpardlForm form_;
};

// --- live ---

Task Spardl::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  if (const std::string why = SpardlRefuses(form_, communicator.topology()); !why.empty()) {
    SPARFUSE_THROW(kConfig, "the collective \"spardl\" " + why);
  }
  std::unique_ptr<CollectiveState> made;
  if (buffers.state == nullptr) made = MakeState(buffers.shape, communicator.topology());
  auto& state = static_cast<SpardlState&>(made == nullptr ? *buffers.state : *made);
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const SpardlBlocks blocks(buffers.shape,
                            static_cast<std::size_t>(communicator.size()) / form_.teams);
  SpardlExchange at{.communicator = communicator,
                    .buffers = buffers,
                    .state = state,
                    .blocks = blocks,
                    .teams = form_.teams,
                    .team = rank / blocks.count(),
                    .own = rank % blocks.count(),
                    .tag = tag,
                    .applied = std::vector<SparsePayload>(blocks.count()),
                    .sent = {}};
  Begin(at);
  co_await ReduceScatter(at);
  at.applied[at.own] = state.sums.cut(at.own);
  if (form_.gathers_lists()) {
    co_await GatherLists(at);
  } else {
    co_await DoubleTeams(at);
  }
  at.sent.push_back(at.applied[at.own].indices.size());
  co_await Gather(at);
  co_await OffThread(buffers, [&] { Finish(at); });
  if (form_.notes_sizes()) buffers.seen = at.sent;
}

void Spardl::Begin(SpardlExchange& at) const {
  ExchangeBuffers& buffers = at.buffers;
  if (!form_.lazy) {
    at.state.sums.BeginEager(at.blocks, ViewSparsePayload(buffers.own));
    return;
  }
  if (buffers.accumulated.size() != buffers.shape.elements) {
    SPARFUSE_THROW(kInternal, "spardl: " + std::to_string(buffers.accumulated.size()) +
                                  " accumulated elements of a range of " +
                                  std::to_string(buffers.shape.elements));
  }
  at.state.sums.BeginLazy(at.blocks, buffers.accumulated, buffers.shape.step);
}

// Adds the arrivals of one step and cuts the payload of the next in one job between them. At the
// end it cuts the own block, to h elements if teams' lists are gathered.
Task Spardl::ReduceScatter(SpardlExchange& at) const {
  SpardlSums& sums = at.state.sums;
  std::vector<SparsePayload> parts(at.blocks.count());
  std::span<const std::byte> arrived;
  std::size_t arrived_first = 0;
  std::size_t arrived_blocks = 0;
  const auto add = [&] {
    if (arrived_blocks == 0) return;
    at.Unpack(arrived, arrived_first, arrived_blocks, parts);
    at.blocks.ForEach(arrived_first, arrived_blocks, [&](std::size_t b) { sums.Add(b, parts[b]); });
  };
  for (const SpardlStep& step : SpardlScatterSteps(at.blocks.count())) {
    const std::size_t each = form_.serial_blocks ? 1 : step.blocks;
    at.sent.push_back(0);
    for (std::size_t from = 0; from < step.blocks; from += each) {
      std::span<const std::byte> out;
      co_await OffThread(at.buffers, [&] {
        add();
        const std::size_t first = at.Around(at.own + step.gap + from);
        at.blocks.ForEach(first, each, [&](std::size_t b) {
          sums.Cut(b, at.blocks.kept(b));
          parts[b] = sums.cut(b);
        });
        out = at.Pack(parts, first, each);
      });
      arrived_first = at.Around(at.own + from);
      arrived_blocks = each;
      const auto room = RoomFor(at.blocks.KeptOf(arrived_first, each), at.state.in);
      const int to = at.RankAt(at.team, at.own + step.gap);
      const int source = at.RankAt(at.team, at.own + at.blocks.count() - step.gap);
      const auto requests = co_await Complete(at.communicator.Irecv(source, at.tag, room),
                                              at.communicator.Isend(to, at.tag, out));
      arrived = room.first(requests[0]->bytes());
      at.sent.back() += out.size() / kSparseElementBytes;
    }
  }
  const std::size_t kept = at.blocks.kept(at.own);
  const std::size_t most = form_.gathers_lists() ? at.state.count.Next(kept, at.teams) : kept;
  co_await OffThread(at.buffers, [&] {
    add();
    sums.Cut(at.own, most);
  });
}

// B-SAG: all ranks that own this block get all teams' lists of it, each as a message of its own.
// The k_b largest of their sums stay. The dropped sums are not applied.
Task Spardl::GatherLists(SpardlExchange& at) const {
  SpardlState& state = at.state;
  const std::size_t kept = at.blocks.kept(at.own);
  const std::size_t most_bytes = kept * kSparseElementBytes;
  const auto room = RoomFor(at.teams * kept, state.lists);
  std::vector<std::span<const std::byte>> lists(at.teams);  // from the own team's on
  lists[0] = at.Pack(at.applied, at.own, 1);
  for (const SpardlStep& step : BruckSteps(at.teams)) {
    const int to = at.RankAt(at.team + at.teams - step.gap, at.own);
    const int source = at.RankAt(at.team + step.gap, at.own);
    std::vector<std::unique_ptr<Request>> requests;
    at.sent.push_back(0);
    for (std::size_t i = 0; i < step.blocks; ++i) {
      const auto in = room.subspan((step.gap + i) * most_bytes, most_bytes);
      lists[step.gap + i] = in;
      requests.push_back(at.communicator.Irecv(source, at.tag + 1, in));
    }
    for (std::size_t i = 0; i < step.blocks; ++i) {
      requests.push_back(at.communicator.Isend(to, at.tag + 1, lists[i]));
      at.sent.back() += lists[i].size() / kSparseElementBytes;
    }
    requests = co_await Complete(std::move(requests));
    for (std::size_t i = 0; i < step.blocks; ++i) {
      lists[step.gap + i] = lists[step.gap + i].first(requests[i]->bytes());
    }
  }
  co_await OffThread(at.buffers, [&] {
    std::vector<SparsePayload> list(at.blocks.count());
    state.merged.Clear();
    for (std::size_t team = 0; team < at.teams; ++team) {
      at.Unpack(lists[(team + at.teams - at.team) % at.teams], at.own, 1, list);
      Merge(state.merged.view(), list[at.own], state.rest);
      std::swap(state.merged, state.rest);
    }
    state.count.Learn(state.merged.size(), kept, at.teams);
    KeepLargest(state.merged.view(), kept, state.kept, state.rest);
  });
  at.applied[at.own] = state.kept.view();
}

// R-SAG: in each step two groups of teams add their sums and keep the k_b largest. All ranks of
// both groups have the dropped sums. The first group's rank returns them to its residual, at
// indices that are applied in the end.
Task Spardl::DoubleTeams(SpardlExchange& at) const {
  SpardlState& state = at.state;
  const std::size_t kept = at.blocks.kept(at.own);
  for (std::size_t bit = 1; bit < at.teams; bit *= 2) {
    const int partner = at.RankAt(at.team ^ bit, at.own);
    const std::span<const std::byte> out = at.Pack(at.applied, at.own, 1);
    const auto room = RoomFor(kept, state.in);
    const auto requests = co_await Complete(at.communicator.Irecv(partner, at.tag + 1, room),
                                            at.communicator.Isend(partner, at.tag + 1, out));
    at.sent.push_back(out.size() / kSparseElementBytes);
    const std::span<const std::byte> in = room.first(requests[0]->bytes());
    co_await OffThread(at.buffers, [&] {
      const bool first = (at.team & bit) == 0;
      std::vector<SparsePayload> lower(at.blocks.count());
      std::vector<SparsePayload> upper(at.blocks.count());
      at.Unpack(first ? out : in, at.own, 1, lower);
      at.Unpack(first ? in : out, at.own, 1, upper);
      Merge(lower[at.own], upper[at.own], state.merged);
      KeepLargest(state.merged.view(), kept, state.kept, state.rest);
      if (at.team % (2 * bit) == 0) state.sums.Keep(at.own, state.rest.view());
    });
    at.applied[at.own] = state.kept.view();
  }
}

Task Spardl::Gather(SpardlExchange& at) const {
  const auto room = RoomFor(at.blocks.KeptOf(0, at.blocks.count()), at.state.in);
  std::size_t used = 0;
  for (const SpardlStep& step : BruckSteps(at.blocks.count())) {
    const std::span<const std::byte> out = at.Pack(at.applied, at.own, step.blocks);
    const std::size_t first = at.Around(at.own + step.gap);
    const auto in = room.subspan(used, at.blocks.KeptOf(first, step.blocks) * kSparseElementBytes);
    used += in.size();
    const int to = at.RankAt(at.team, at.own + at.blocks.count() - step.gap);
    const int source = at.RankAt(at.team, first);
    const auto requests = co_await Complete(at.communicator.Irecv(source, at.tag + 2, in),
                                            at.communicator.Isend(to, at.tag + 2, out));
    at.Unpack(in.first(requests[0]->bytes()), first, step.blocks, at.applied);
  }
}

void Spardl::Finish(SpardlExchange& at) {
  SparseSums& returned = at.state.returned;
  returned.Clear();
  std::size_t count = 0;
  for (std::size_t b = 0; b < at.blocks.count(); ++b) {
    at.state.sums.AppendReturned(b, at.applied[b], returned);
    count += at.applied[b].indices.size();
  }
  returned.WriteTo(at.buffers.returned);
  at.buffers.payloads.assign(1, Join(at.applied, at.buffers.Keep(count * kSparseElementBytes)));
}

// --- modelled ---

struct Hop {
  int to = 0;
  std::uint64_t elements = 0;
};

// Adds a step in which every rank sends to one other rank. `round` gives the other properties.
template <class HopOf>
void AddStep(Round round, std::uint64_t messages, const Topology& topology, const HopOf& hop_of,
             RoundPlan& plan) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(topology.nodes()));
  std::vector<std::uint64_t> in(out.size());
  round.link = LinkClass::kIntraNode;
  for (int rank = 0; rank < topology.ranks; ++rank) {
    const Hop hop = hop_of(static_cast<std::size_t>(rank));
    const std::uint64_t bytes = hop.elements * kSparseElementBytes;
    plan.per_rank[static_cast<std::size_t>(rank)] += {messages, 0, bytes, 0};
    plan.per_rank[static_cast<std::size_t>(hop.to)] += {0, messages, 0, bytes};
    round.bytes = std::max(round.bytes, bytes);
    if (topology.LinkBetween(rank, hop.to) == LinkClass::kIntraNode) continue;
    round.link = LinkClass::kInterNode;
    out[static_cast<std::size_t>(topology.NodeOf(rank))] += bytes;
    in[static_cast<std::size_t>(topology.NodeOf(hop.to))] += bytes;
  }
  round.node_bytes = std::max(*std::ranges::max_element(out), *std::ranges::max_element(in));
  plan.rounds.push_back(round);
}

RoundPlan Spardl::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const std::size_t teams = form_.teams;
  const SpardlBlocks blocks(sizes.shape, ranks / teams);
  const std::size_t places = blocks.count();
  const auto sent = form_.notes_sizes() ? sizes.seen : SpardlSizes(form_, {}, topology, sizes);
  const auto rank_at = [&](std::size_t team, std::size_t place) {
    return static_cast<int>(team % teams * places + place % places);
  };
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  std::size_t at = 0;  // step in the sent counts
  const SpardlWork work(form_, blocks);
  std::vector<std::size_t> arrivals(places);  // bundles of the block that many places on
  for (const SpardlStep& step : SpardlScatterSteps(places)) {
    Round round;
    if (form_.serial_blocks) round.repeat = static_cast<std::uint32_t>(step.blocks);
    for (std::size_t o = 0; o < step.blocks; ++o) {
      work.Cut(arrivals[step.gap + o], round);
      work.Add(arrivals[o]++, round);
    }
    const auto hop = [&](std::size_t rank) {
      return Hop{rank_at(rank / places, rank + step.gap), sent[rank][at]};
    };
    AddStep(round, form_.serial_blocks ? step.blocks : 1, topology, hop, plan);
    ++at;
  }
  // Without a message: the work after the last arrival, and on the result.
  Round alone{.messages = 0, .link = LinkClass::kIntraNode};
  work.Cut(arrivals[0], alone);
  const std::vector<SpardlStep> lists =
      form_.gathers_lists() ? BruckSteps(teams) : std::vector<SpardlStep>();
  for (const SpardlStep& step : lists) {
    const auto hop = [&](std::size_t rank) {
      return Hop{rank_at(rank / places + teams - step.gap, rank), sent[rank][at]};
    };
    AddStep({.messages = static_cast<std::uint32_t>(step.blocks)}, step.blocks, topology, hop,
            plan);
    work.Join(step.blocks, alone);
    ++at;
  }
  for (std::size_t bit = 1; !form_.gathers_lists() && bit < teams; bit *= 2, ++at) {
    const auto hop = [&](std::size_t rank) {
      return Hop{rank_at(rank / places ^ bit, rank), sent[rank][at]};
    };
    Round round;
    work.Join(1, round);
    AddStep(round, 1, topology, hop, plan);
  }
  std::vector<std::uint64_t> before(2 * places + 1);  // applied before a block, twice round
  for (std::size_t b = 0; b < 2 * places; ++b) before[b + 1] = before[b] + sent[b % places].back();
  for (const SpardlStep& step : BruckSteps(places)) {
    const auto hop = [&](std::size_t rank) {
      const std::size_t own = rank % places;
      return Hop{rank_at(rank / places, own + places - step.gap),
                 before[own + step.blocks] - before[own]};
    };
    AddStep({}, 1, topology, hop, plan);
  }
  plan.sums = before[places];
  for (const std::size_t arrived : arrivals) work.Return(arrived, alone);
  plan.rounds.push_back(alone);
  return plan;
}

std::string WhyRefused(const Options& options, const Topology& topology) {
  return SpardlRefuses(FormOf(options), topology);
}

CollectiveTraits TraitsOf(const Options& options) {
  const bool lazy = FormOf(options).lazy;
  return {.sums = true, .drops = !lazy, .selects = lazy, .mass = Conservation::kRounded};
}

}  // namespace

CollectiveDescriptor SpardlCollective() {
  return {
      .name = "spardl",
      .source = "Zhao et al., SparDL, ICDE 2024, section III",
      .revision = 1,
      .payload = PayloadKind::kSparse,
      .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
        return std::make_unique<Spardl>(resolved);
      },
      .host_memory = true,
      .sums_on_host = true,
      .options = SpardlOptions(),
      .traits = TraitsOf,
      .refuses = WhyRefused,
      .summary =
          "each rank reduces a block, which every rank on its way cuts to the k_b largest sums; "
          "then blocks are gathered",
      .deviations =
          "A bundle of blocks is one message without counts; the published code exchanges block by "
          "block, with indices, values and count apart (serial_blocks: one message a block). It "
          "fixes the number of teams at 1 and leaves recursive doubling out. h stays between k_b / "
          "d and k_b and moves by 1 at least. A value that is dropped while teams compare their "
          "blocks stays where it came from or, if its index is applied, with the first rank that "
          "dropped it; the code puts some of these values into residuals that it overwrites. A "
          "block of which nothing is applied returns to the residual like any other. Each block "
          "keeps k_b elements, at least one, or all if it has fewer."};
}

}  // namespace sparfuse::baselines
