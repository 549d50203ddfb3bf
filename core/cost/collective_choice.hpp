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
//
// Computes too which algorithm and protocol NCCL chooses for a collective, and how long NCCL's
// tuner takes it to last. All functions are pure.
//
// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc, with the constants below.
// Deviations:
// * A ring or tree runs at the rate of the slowest hop declared. NCCL searches the machine, and
//   multiplies channels by one of a list of rates; its tree of two nodes may be taken to run at the
//   rate within nodes.
// * A tree's part of that rate by size is interpolated in log(bytes), and equals NCCL's at powers
//   of two. With NCCL's own steps a larger buffer might take less time.
// * A ring has no more network hops than hops; a latency that a network card tells is not added.
// * CollNet and NVLS are left out: NCCL may do better in and among H100 nodes with NVSwitch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

// Holds the published constants by which NCCL's tuner foresees how long a collective takes, of two
// versions. NCCL chooses by them on any network; a caller replaces those that it knows better.
//
// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc (tables at its top, ncclTopoTuneModel,
// ncclTopoGetAlgoTime), at commits 920dbe5b (2.8.3-1) and b6475625 (2.20.3-1).

enum class NcclAlgorithm : std::uint8_t { kTree, kRing };
inline constexpr std::size_t kNcclAlgorithms = 2;
// How data and its arrival are told: a flag with every 4 bytes, with every 120, or once a chunk.
enum class NcclProtocol : std::uint8_t { kLl, kLl128, kSimple };
inline constexpr std::size_t kNcclProtocols = 3;
enum class NcclCollective : std::uint8_t { kAllReduce, kAllGather };
inline constexpr std::size_t kNcclCollectives = 2;
enum class NcclHop : std::uint8_t { kNvlink, kPcie, kNetwork };
inline constexpr std::size_t kNcclHops = 3;
// Cards by the table that NCCL reads for them: V100 and what has none of its own (Turing, Pascal),
// A100, H100 and later.
enum class NcclCards : std::uint8_t { kVolta, kAmpere, kHopper };
inline constexpr std::size_t kNcclCards = 3;
enum class NcclProcessor : std::uint8_t { kIntel, kAmd };
inline constexpr std::size_t kNcclProcessors = 2;

using NcclByProtocol = std::array<double, kNcclProtocols>;
using NcclByAlgorithm = std::array<NcclByProtocol, kNcclAlgorithms>;
// [one node, two, more]
using NcclByNodes = std::array<double, 3>;
using NcclByCards = std::array<NcclByNodes, kNcclCards>;

// Times are in microseconds, rates in 10^9 bytes a second over a hop of a ring or tree.
struct NcclConstants {
  std::string_view version;

  // --- start-up
  NcclByAlgorithm base_us;                        // once
  std::array<NcclByAlgorithm, kNcclHops> hop_us;  // and of each hop
  // Where there are several nodes, of hops within one: a factor with LL, and what a ring takes at
  // least, three times that with Simple.
  double ll_hop_factor = 1;
  std::array<double, kNcclProcessors> post_us{};
  int fewer_network_hops = 0;  // than two a node in a ring's all-reduce
  // A ring's all-reduce among nodes with Simple takes so many times the start-up time from a size
  // on: ranks * (plateau_bytes + plateau_bytes_per_channel * channels).
  double plateau_bytes = 0;
  double plateau_bytes_per_channel = 0;
  std::array<double, kNcclCards> plateau_factor;

  // --- rate, as fractions of the slowest hop's; a ring's with Simple is 1
  double ring_ll = 0;
  double ring_ll_gather = 0;  // of an all-gather in one node
  double ring_ll128 = 0;
  double ring_ll128_lone = 0;  // where nodes have fewer than two ranks each
  double tree = 0;
  // Of what a tree has with Simple:
  double tree_ll = 0;
  double tree_ll128 = 0;
  double tree_ll128_one_node = 0;
  double simple_tree_fraction = 1;  // NcclMachine::simple_tree, with any protocol
  // [i] at 64 * 2^i bytes, with any protocol; 1 from 64 * 2^23 on.
  std::array<std::array<double, 23>, kNcclProtocols> tree_by_size;

  // --- rates that are not exceeded
  std::array<double, kNcclCards> hop_rate;
  std::array<double, kNcclCards> ll_one_node_rate;
  std::array<std::array<double, 2>, kNcclProcessors> ll_nodes_rate;  // [][two nodes, more]
  // Of each channel:
  NcclByCards tree_rate;
  NcclByCards tree_ll128_rate;
  std::array<NcclByCards, kNcclCollectives> ring_ll128_rate;
};

extern const NcclConstants kNccl2_8;   // 2.8.3
extern const NcclConstants kNccl2_20;  // 2.20.3

// What NCCL finds out of a machine.
struct NcclMachine {
  CollectiveLinks links;              // start-up times are read by NcclCost alone
  NcclHop within = NcclHop::kNvlink;  // kNvlink or kPcie
  NcclCards cards = NcclCards::kVolta;
  NcclProcessor processor = NcclProcessor::kIntel;
  int channels = 0;  // at least 1, as NCCL_DEBUG=INFO prints
  // NCCL allows it on equal V100, A100 or H100, of NVLink, with network cards near them.
  bool ll128 = false;
  // One rank of a node talks to all other nodes of its tree ("Pattern 3" of NCCL_DEBUG=INFO), and
  // not several in turn. Always so with one rank a node.
  bool simple_tree = false;
};

struct NcclEstimate {
  NcclAlgorithm algorithm = NcclAlgorithm::kTree;
  NcclProtocol protocol = NcclProtocol::kLl;
  // Pipelined. The slowest hops are occupied all the time that bytes move, others in proportion to
  // their rates.
  CollectiveCost cost;

  // "ring/simple", "tree/ll128", ...
  std::string_view name() const;
};

// What NCCL has for a collective: a tree and a ring for an all-reduce, a ring for an all-gather,
// with each protocol; in NCCL's order. One rank, or no bytes, take no time; time does not fall with
// bytes, nor rise with rates.
//
//   bytes  the buffer that is reduced, or what every rank has gathered in the end. At least 0.
//
// Throws Error{kConfig} for bytes, channels, a topology or rates out of range.
std::vector<NcclEstimate> NcclEstimates(NcclCollective collective, const NcclMachine& machine,
                                        const Topology& topology, double bytes,
                                        const NcclConstants& constants);

// The fastest of these; of equal ones the first.
NcclEstimate NcclChoice(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants);

// What the collective that NCCL chooses takes on links with the start-up times of machine.links.
//
// The tuner knows no network but that of its constants (RDMA), and chooses by them on any: over
// TCP it may choose what is not the fastest. What it has chosen then crosses the links that are
// there. A link's start-up time is a ring's step with LL128, which the constants have, too: by as
// much as the two differ each hop of that link takes longer or shorter, with any algorithm and
// protocol, down to 0. On links like the constants' it is NcclChoice().cost; elsewhere time may
// fall with bytes where the choice changes. Throws as NcclChoice does.
CollectiveCost NcclCost(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants);

}  // namespace sparfuse
