// Computes how long dense all-reduces and broadcasts take on a declared network, in closed form.
//
// There are P ranks on N nodes of g ranks, and B bytes. A hop leads from a rank to the next one,
// within a node (w) or between nodes (n). It takes a start-up time a, and the time of its bytes at
// the hop's rate, which both directions have at once.
//
//   algorithm             start-up                         bytes over a hop w     out of a node
//   tree all-reduce       2(g-1) a_w + 2 ceil(log2 N) a_n  min(g-1, 2) B          min(N, 4)/2 B
//   two-level all-reduce  2(g-1) a_w + 2(N-1) a_n          2(g-1)/g B             2(N-1)/N B
//   ring broadcast        a way of P-1 hops                B                      B
//   tree broadcast        log2 g a_w + log2 N a_n          log2 g B               g log2 N B
//
// Rings and trees are pipelined: bytes move over both link classes at once, at the rate of the
// slower class. Two-level algorithms use one level after the other. The tree broadcast is not
// pipelined, and its logarithms are rounded up: first the ranks of the root's node get the buffer,
// one more from each that has it, then each of them sends it on to the rank of equal local rank on
// other nodes. So all ranks of a node send over its cards at once, as gloo's broadcast does.
//
// Source: P. Patarasuk & X. Yuan, JPDC 69(2), 2009 (ring); P. Sanders, J. Speck & J. L. Traeff,
// Parallel Computing 35(12), 2009 (two trees, in NCCL since 2.4); R. Thakur, R. Rabenseifner &
// W. Gropp, IJHPCA 19(1), 2005 (start-up and rate). Processor time of sums is left out, and so are
// sums that a switch computes (NVLS, SHARP).
//
// Also computes the algorithm and protocol that NCCL chooses for a collective, and the time that
// its tuner predicts. All functions are pure.
//
// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc, with the constants below.
// Deviations:
// * A ring or tree runs at the rate of the slowest hop declared. NCCL searches the machine, and
//   multiplies channels by one of a list of rates. NCCL may assume the rate within nodes for a tree
//   of two nodes.
// * The fraction of that rate that a tree reaches is interpolated in log(bytes), and equals NCCL's
//   at powers of two. With NCCL's own steps a larger buffer might take less time.
// * A ring has no more network hops than hops. A latency that a network card reports is not added.
// * CollNet and NVLS are left out: NCCL may be faster in and among H100 nodes with NVSwitch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/transport/topology.hpp"

namespace sparfuse {

// Rate and start-up time of a hop. A link class without hops is not read.
struct LinkHop {
  // In one direction. Within a node: while all ranks send. Between nodes: of one network card.
  double bytes_per_second = 0;
  double startup_seconds = 0;
};

// A declared network.
struct CollectiveLinks {
  std::array<LinkHop, kLinkClasses> hops;  // by LinkClass
  int cards_per_node = 1;                  // network cards, shared evenly by the ranks of a node

  LinkHop& operator[](LinkClass link) { return hops[static_cast<std::size_t>(link)]; }
  const LinkHop& operator[](LinkClass link) const { return hops[static_cast<std::size_t>(link)]; }
};

// One all-reduce or all-gather with nothing else on the links.
struct CollectiveCost {
  double startup_seconds = 0;
  // [by LinkClass] how long the bytes occupy the links of a class at its full rate.
  std::array<double, kLinkClasses> link_seconds{};
  bool pipelined = false;  // uses both classes at once; else one after the other

  double transfer_seconds() const {
    return pipelined ? std::max(link_seconds[0], link_seconds[1])
                     : link_seconds[0] + link_seconds[1];
  }
  double seconds() const { return startup_seconds + transfer_seconds(); }
  bool operator==(const CollectiveCost&) const = default;
};

// These hold for all functions below. The last node may hold fewer ranks. One rank, or no bytes,
// take no time. Time does not fall with bytes, nor rise with rates.
//
// bytes: size of the reduced buffer: B. At least 0.
//
// They throw Error{kConfig} if bytes, the topology or a count is out of range, or if the rate or
// start-up time of a link class with hops is.

// Two binary trees of the nodes carry a half each; each node is a chain of its ranks.
CollectiveCost TreeAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes);

// A reduce-scatter in each node, an all-reduce among ranks of equal place on their nodes, and an
// all-gather in each node, all of them in rings. Throws Error{kUnsupported}, too, if nodes hold
// unequal numbers of ranks.
CollectiveCost TwoLevelAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                     double bytes);

// `bytes` go from one rank to all others, in as many rings as a node has network cards.
CollectiveCost RingBroadcastCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes);
CollectiveCost TreeBroadcastCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes);

// The constants by which NCCL's tuner predicts the time of a collective follow, as published with
// two versions. NCCL chooses by them on any network; a caller may replace those that it knows
// better.
//
// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc (tables at its top, ncclTopoTuneModel,
// ncclTopoGetAlgoTime), at commits 920dbe5b (2.8.3-1) and b6475625 (2.20.3-1).

enum class NcclAlgorithm : std::uint8_t { kTree, kRing };
inline constexpr std::size_t kNcclAlgorithms = 2;
// How often a flag announces arrived data: with every 4 bytes, with every 120, or once a chunk.
enum class NcclProtocol : std::uint8_t { kLl, kLl128, kSimple };
inline constexpr std::size_t kNcclProtocols = 3;
enum class NcclCollective : std::uint8_t { kAllReduce, kAllGather };
inline constexpr std::size_t kNcclCollectives = 2;
enum class NcclHop : std::uint8_t { kNvlink, kPcie, kNetwork };
inline constexpr std::size_t kNcclHops = 3;
// Cards by the table that NCCL reads for them: V100 and cards without a table of their own (Turing,
// Pascal), A100, H100 and later.
enum class NcclCards : std::uint8_t { kVolta, kAmpere, kHopper };
inline constexpr std::size_t kNcclCards = 3;
enum class NcclProcessor : std::uint8_t { kIntel, kAmd };
inline constexpr std::size_t kNcclProcessors = 2;

using NcclByProtocol = std::array<double, kNcclProtocols>;
using NcclByAlgorithm = std::array<NcclByProtocol, kNcclAlgorithms>;
// [one node, two, more]
using NcclByNodes = std::array<double, 3>;
using NcclByCards = std::array<NcclByNodes, kNcclCards>;

// Times are in microseconds; rates are in 10^9 bytes a second over a hop of a ring or tree.
struct NcclConstants {
  std::string_view version;

  // --- start-up
  NcclByAlgorithm base_us;                        // once
  std::array<NcclByAlgorithm, kNcclHops> hop_us;  // for each hop
  // For hops within a node if there are several nodes: a factor with LL, and the least time of a
  // ring's hop, three times as long with Simple.
  double ll_hop_factor = 1;
  std::array<double, kNcclProcessors> post_us{};
  int fewer_network_hops = 0;  // than two a node in a ring's all-reduce
  // A ring's all-reduce among nodes with Simple has its start-up time multiplied by plateau_factor
  // from a size on: ranks * (plateau_bytes + plateau_bytes_per_channel * channels).
  double plateau_bytes = 0;
  double plateau_bytes_per_channel = 0;
  std::array<double, kNcclCards> plateau_factor;

  // --- rates, as fractions of the slowest hop's; the fraction of a ring with Simple is 1
  double ring_ll = 0;
  double ring_ll_gather = 0;  // of an all-gather in one node
  double ring_ll128 = 0;
  double ring_ll128_lone = 0;  // if nodes have fewer than two ranks each
  double tree = 0;
  // As fractions of a tree's rate with Simple:
  double tree_ll = 0;
  double tree_ll128 = 0;
  double tree_ll128_one_node = 0;
  double simple_tree_fraction = 1;  // NcclMachine::simple_tree, with any protocol
  // [i] at 64 * 2^i bytes, with any protocol; 1 from 64 * 2^23 on.
  std::array<std::array<double, 23>, kNcclProtocols> tree_by_size;

  // --- upper bounds of rates
  std::array<double, kNcclCards> hop_rate;
  std::array<double, kNcclCards> ll_one_node_rate;
  std::array<std::array<double, 2>, kNcclProcessors> ll_nodes_rate;  // [][two nodes, more]
  // For each channel:
  NcclByCards tree_rate;
  NcclByCards tree_ll128_rate;
  std::array<NcclByCards, kNcclCollectives> ring_ll128_rate;
};

extern const NcclConstants kNccl2_8;   // 2.8.3
extern const NcclConstants kNccl2_20;  // 2.20.3

// The properties of a machine that NCCL detects.
struct NcclMachine {
  CollectiveLinks links;              // start-up times are read by NcclCost alone
  NcclHop within = NcclHop::kNvlink;  // kNvlink or kPcie
  NcclCards cards = NcclCards::kVolta;
  NcclProcessor processor = NcclProcessor::kIntel;
  int channels = 0;  // at least 1, as NCCL_DEBUG=INFO prints
  // Whether NCCL allows LL128: on equal V100, A100 or H100 with NVLink and network cards near them.
  bool ll128 = false;
  // One rank of a node talks to all other nodes of its tree ("Pattern 3" of NCCL_DEBUG=INFO),
  // instead of several ranks. Always so with one rank a node.
  bool simple_tree = false;
};

struct NcclEstimate {
  NcclAlgorithm algorithm = NcclAlgorithm::kTree;
  NcclProtocol protocol = NcclProtocol::kLl;
  // Pipelined. The slowest hops are occupied as long as bytes move, other hops in proportion to
  // their rates.
  CollectiveCost cost;

  // "ring/simple", "tree/ll128", ...
  std::string_view name() const;
};

// NCCL's candidates for a collective, in NCCL's order: a tree and a ring for an all-reduce, a ring
// for an all-gather, with each protocol. One rank, or no bytes, take no time. Time does not fall
// with bytes, nor rise with rates.
//
//   bytes  size of the reduced buffer, or of the gathered data on each rank. At least 0.
//
// Throws Error{kConfig} if bytes, channels, the topology or rates are out of range.
std::vector<NcclEstimate> NcclEstimates(NcclCollective collective, const NcclMachine& machine,
                                        const Topology& topology, double bytes,
                                        const NcclConstants& constants);

// The fastest of NcclEstimates; the first if several are equal.
NcclEstimate NcclChoice(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants);

// The time of the collective that NCCL chooses, on links with the start-up times of machine.links.
//
// The tuner assumes the network of its constants (RDMA) everywhere, so that over TCP its choice may
// not be the fastest. The chosen collective then runs on the actual links. A link's start-up time
// is the time of a ring's step with LL128, which the constants have, too. The difference of the two
// is added to each hop of that link, with any algorithm and protocol, down to 0. On links like
// those of the constants the result is NcclChoice().cost. On other links, time may fall with bytes
// at a size at which the choice changes. Throws as NcclChoice does.
CollectiveCost NcclCost(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants);

}  // namespace sparfuse
