#include <algorithm>
#include <cmath>
#include <numeric>

#include "baselines/zen/zen.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

std::uint64_t Whole(double elements) { return static_cast<std::uint64_t>(std::llround(elements)); }

// Distributes `total` over servers or local owners.
struct Spreading {
  ZenBalance balance;
  const OverlapModel& overlap;

  // Returns the share of the busiest of `parts`, if their mean share is `part`.
  double Busiest(double part, std::size_t parts) const {
    if (balance == ZenBalance::kRanges) return part * overlap.LargestRegion(parts);
    return part + std::sqrt(2 * part * std::log(static_cast<double>(parts)));
  }
  // Gives the first part the most and the others the rest evenly; the sum is `total`.
  std::vector<std::uint64_t> Over(std::uint64_t total, std::size_t parts) const {
    const double mean = static_cast<double>(total) / static_cast<double>(parts);
    std::vector<std::uint64_t> spread(parts, total);
    if (parts == 1) return spread;
    const auto others = static_cast<std::uint64_t>(parts - 1);
    spread[0] = std::min(total, Whole(Busiest(mean, parts)));
    const std::uint64_t rest = total - spread[0];
    for (std::uint64_t i = 0; i < others; ++i) {
      spread[i + 1] = rest / others + (i < rest % others ? 1 : 0);
    }
    return spread;
  }
};

// Expects the elements that the ranks of each node sum before the servers do.
void ExpectLocal(const ExchangeSizes& sizes, double density, const ZenGrid& grid,
                 const Spreading& spreading, std::vector<ZenSizes>& expected) {
  const std::size_t local = grid.local;
  const double column = static_cast<double>(sizes.shape.elements) / static_cast<double>(local);
  const double unions = spreading.overlap.Union(density, local) * column;
  for (std::size_t first = 0; first < grid.ranks; first += local) {
    std::uint64_t total = 0;
    for (std::size_t r = first; r < first + local; ++r) {
      total += expected[r].local_out = expected[r].node_sum - expected[r].node_sum / local;
    }
    const std::vector<std::uint64_t> in = spreading.Over(total, local);
    for (std::size_t l = 0; l < local; ++l) {
      ZenSizes& rank = expected[first + l];
      rank.local_in = in[l];
      const std::uint64_t read = rank.node_sum - rank.local_out + rank.local_in;
      // The sum of i parts is read again with the next one: at most so often, if none overlap.
      rank.local_merged = read * (local - 1) * (local + 2) / (2 * local);
      rank.node_sum = std::min(read, Whole(unions));
    }
  }
}

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

std::uint64_t ZenSizes::PulledBytes() const {
  const IndexForm form = bitmap_bytes > 0 ? IndexForm::kBitmap : IndexForm::kCoo;
  return kSumsHeaderBytes + bitmap_bytes + BodyBytes(form, summed);
}

ZenSizes ZenSizes::Of(const std::vector<std::uint64_t>& seen) {
  return {seen.at(0), seen.at(1), seen.at(2), seen.at(3), seen.at(4),
          seen.at(5), seen.at(6), seen.at(7), seen.at(8), seen.at(9)};
}

std::vector<std::uint64_t> ZenSizes::Words() const {
  return {local_out, local_in,     local_merged, node_sum, out,
          in,        off_node_out, off_node_in,  summed,   bitmap_bytes};
}

std::size_t RanksBeside(const Topology& topology, std::size_t rank) {
  const int node = topology.NodeOf(static_cast<int>(rank));
  return static_cast<std::size_t>(
      std::min(topology.ranks_per_node, topology.ranks - node * topology.ranks_per_node));
}

std::vector<ZenSizes> ExpectedZenSizes(const ExchangeSizes& sizes, const OverlapModel& overlap,
                                       const Topology& topology, const ZenGrid& grid,
                                       ZenBalance balance, FormChoice form) {
  const Spreading spreading{balance, overlap};
  const std::size_t ranks = grid.ranks;
  std::vector<ZenSizes> expected(ranks);
  std::uint64_t all = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    all += expected[r].node_sum = sizes.payload_bytes[r] / kSparseElementBytes;
  }
  const auto elements = static_cast<double>(sizes.shape.elements);
  const auto count = static_cast<double>(ranks);
  const double density =
      elements == 0 ? 0 : std::min(1.0, static_cast<double>(all) / (count * elements));
  if (ranks == 1) {
    expected[0].summed = all;
    return expected;
  }
  if (grid.local > 1) ExpectLocal(sizes, density, grid, spreading, expected);

  const std::size_t nodes = grid.nodes();
  for (std::size_t column = 0; column < grid.local; ++column) {
    std::uint64_t total = 0;
    for (std::size_t r = column; r < ranks; r += grid.local) {
      total += expected[r].out = expected[r].node_sum - expected[r].node_sum / nodes;
    }
    const std::vector<std::uint64_t> in = spreading.Over(total, nodes);
    for (std::size_t m = 0; m < nodes; ++m) expected[m * grid.local + column].in = in[m];
  }

  // If ranges differ, so do the fractions of them that some rank selects.
  const auto list = static_cast<std::size_t>(std::ceil(elements / count));
  const double largest = balance == ZenBalance::kRanges ? overlap.LargestRegion(ranks) : 1;
  const double others = (count - largest) / (count - 1);
  const auto sums_of = [&](double share) {
    return Whole(overlap.Union(std::min(1.0, density * share), ranks) * elements / count);
  };
  std::vector<std::uint64_t> summed(ranks, sums_of(others));
  if (balance == ZenBalance::kRanges) {
    summed[0] = sums_of(largest);
  } else {
    summed = spreading.Over(Whole(overlap.Union(density, ranks) * elements), ranks);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    ZenSizes& rank = expected[r];
    const std::size_t away = ranks - RanksBeside(topology, r);
    const std::size_t peers = grid.local > 1 ? away : ranks - 1;
    rank.off_node_out = away == 0 ? 0 : rank.out * away / peers;
    rank.off_node_in = away == 0 ? 0 : rank.in * away / peers;
    rank.summed = std::min<std::uint64_t>({summed[r], rank.Kept() + rank.in, list});
    if (FormOf(form, list, rank.summed) == IndexForm::kBitmap) {
      rank.bitmap_bytes = BitmapBytes(list);
    }
  }
  return expected;
}

RoundPlan ZenRounds(const ZenGrid& grid, const ExchangeSizes& sizes, const Topology& topology) {
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
