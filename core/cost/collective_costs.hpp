// Computes how long dense all-reduces and all-gathers take on a declared network, in closed form.
//
// P ranks on N nodes of g; B bytes. A hop leads from a rank to the next one, within a node (w) or
// between nodes (n). It takes a start-up time a, and the time of its bytes at a rate that it has in
// both directions at once.
//
//   algorithm             start-up                         bytes over a hop w     out of a node
//   ring all-reduce       a way of 2(P-1) hops             2(P-1)/P B             2(P-1)/P B
//   tree all-reduce       2(g-1) a_w + 2 ceil(log2 N) a_n  min(g-1, 2) B          min(N, 4)/2 B
//   two-level all-reduce  2(g-1) a_w + 2(N-1) a_n          2(g-1)/g B             2(N-1)/N B
//   ring all-gather       a way of P-1 hops                (P-1)/P B              (P-1)/P B
//   two-level all-gather  (g-1) a_w + (N-1) a_n            (g-1)/g B              (N-1)/N B
//
// Rings and trees are pipelined: bytes move over both link classes at once, at the rate of the
// slower one. The two levels take turns.
//
// Source: P. Patarasuk & X. Yuan, JPDC 69(2), 2009 (ring); P. Sanders, J. Speck & J. L. Traeff,
// Parallel Computing 35(12), 2009 (two trees, in NCCL since 2.4); R. Thakur, R. Rabenseifner &
// W. Gropp, IJHPCA 19(1), 2005 (start-up and rate). What sums cost a processor is not in here, nor
// what a switch sums up (NVLS, SHARP).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/transport/topology.hpp"

namespace sparfuse {

// What a hop achieves. That of a link class without hops is not read.
struct LinkHop {
  // In one direction. Within a node: while all ranks send. Between nodes: of one network card.
  double bytes_per_second = 0;
  double startup_seconds = 0;
};

// A declared network.
struct CollectiveLinks {
  std::array<LinkHop, kLinkClasses> hops;  // by LinkClass
  int cards_per_node = 1;                  // network cards, which the ranks of a node share evenly

  LinkHop& operator[](LinkClass link) { return hops[static_cast<std::size_t>(link)]; }
  const LinkHop& operator[](LinkClass link) const { return hops[static_cast<std::size_t>(link)]; }
};

// One all-reduce or all-gather with nothing else on the links.
struct CollectiveCost {
  double startup_seconds = 0;
  // [by LinkClass] how long the bytes occupy the links of a class, at its full rate.
  std::array<double, kLinkClasses> link_seconds{};
  bool pipelined = false;  // both classes at once; else one after the other

  double transfer_seconds() const {
    return pipelined ? std::max(link_seconds[0], link_seconds[1])
                     : link_seconds[0] + link_seconds[1];
  }
  double seconds() const { return startup_seconds + transfer_seconds(); }
  bool operator==(const CollectiveCost&) const = default;
};

// Hops one after another, by LinkClass.
using HopCounts = std::array<int, kLinkClasses>;

// Hops that a chunk of a ring over the ranks in order crosses before the last rank has it: of all
// chunks the one that leaves nodes most often. 2(P-1) for an all-reduce, P-1 for an all-gather.
// Counts of `topology` are at least 1.
HopCounts RingAllReduceHops(const Topology& topology);
HopCounts RingAllGatherHops(const Topology& topology);

// The slowest link class's rate that a collective has on `topology`, with that many network cards
// of a node in use. Above 0; infinite for one rank.
double SlowestRate(const CollectiveLinks& links, const Topology& topology, int cards);

// For all of these: the last node may hold fewer ranks; one rank, or no bytes, take no time; time
// does not fall with bytes, nor rise with rates.
//
//   bytes  of the buffer that is reduced: B. At least 0.
//   rings  that carry a part each side by side, over a network card each, as far as there are
//          cards: NCCL lays one through each card at least, MPI libraries one in all. At least 1.
//
// Throws Error{kConfig} for bytes, a topology, a count or, where there are such hops, a rate or
// start-up time out of range.
CollectiveCost RingAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes, int rings);

// Two binary trees of the nodes with a half each, a node being a chain of its ranks.
CollectiveCost TreeAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes);

// A reduce-scatter in each node, an all-reduce of each local rank with those of other nodes, an
// all-gather in each node, all of them in rings. Throws Error{kUnsupported}, too, where nodes hold
// unequal numbers of ranks.
CollectiveCost TwoLevelAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                     double bytes);

// gathered_bytes: what every rank has in the end, of which each contributed an equal part.
CollectiveCost RingAllGatherCost(const CollectiveLinks& links, const Topology& topology,
                                 double gathered_bytes, int rings);

// An all-gather of each local rank with those of other nodes, then one in each node. Refuses what
// TwoLevelAllReduceCost refuses.
CollectiveCost TwoLevelAllGatherCost(const CollectiveLinks& links, const Topology& topology,
                                     double gathered_bytes);

}  // namespace sparfuse
