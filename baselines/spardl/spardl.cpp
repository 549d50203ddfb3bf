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
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "baselines/spardl/spardl_sizes.hpp"
#include "baselines/spardl/spardl_sums.hpp"
#include "core/base/error.hpp"
#include "core/collective/exchange_buffers.hpp"

namespace sparfuse::baselines {
namespace {

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
  const std::function<void()> finish = [&] { Finish(at); };
  co_await OffThread(buffers, finish);
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
      const std::function<void()> work = [&] {
        add();
        const std::size_t first = at.Around(at.own + step.gap + from);
        at.blocks.ForEach(first, each, [&](std::size_t b) {
          sums.Cut(b, at.blocks.kept(b));
          parts[b] = sums.cut(b);
        });
        out = at.Pack(parts, first, each);
      };
      co_await OffThread(at.buffers, work);
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
  const std::function<void()> last = [&] {
    add();
    sums.Cut(at.own, most);
  };
  co_await OffThread(at.buffers, last);
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
  const std::function<void()> work = [&] {
    std::vector<SparsePayload> list(at.blocks.count());
    state.merged.Clear();
    for (std::size_t team = 0; team < at.teams; ++team) {
      at.Unpack(lists[(team + at.teams - at.team) % at.teams], at.own, 1, list);
      Merge(state.merged.view(), list[at.own], state.rest);
      std::swap(state.merged, state.rest);
    }
    state.count.Learn(state.merged.size(), kept, at.teams);
    KeepLargest(state.merged.view(), kept, state.kept, state.rest);
  };
  co_await OffThread(at.buffers, work);
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
    const std::function<void()> work = [&] {
      const bool first = (at.team & bit) == 0;
      std::vector<SparsePayload> lower(at.blocks.count());
      std::vector<SparsePayload> upper(at.blocks.count());
      at.Unpack(first ? out : in, at.own, 1, lower);
      at.Unpack(first ? in : out, at.own, 1, upper);
      Merge(lower[at.own], upper[at.own], state.merged);
      KeepLargest(state.merged.view(), kept, state.kept, state.rest);
      if (at.team % (2 * bit) == 0) state.sums.Keep(at.own, state.rest.view());
    };
    co_await OffThread(at.buffers, work);
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
