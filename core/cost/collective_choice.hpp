// Computes which algorithm and protocol NCCL chooses for a collective, and how long NCCL's tuner
// takes it to last. Pure functions.
//
// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc, with core/cost/nccl_constants.hpp.
// Deviations:
// * A ring or tree runs at the rate of the slowest hop declared. NCCL searches the machine, and
//   multiplies channels by one of a list of rates; its tree of two nodes may be taken to run at the
//   rate within nodes.
// * A tree's part of that rate by size is interpolated in log(bytes), and equals NCCL's at powers
//   of two. With NCCL's own steps a larger buffer might take less time.
// * A ring has no more network hops than hops; a latency that a network card tells is not added.
// * CollNet and NVLS are left out: NCCL may do better in and among H100 nodes with NVSwitch.
#pragma once

#include <string_view>
#include <vector>

#include "core/cost/collective_costs.hpp"
#include "core/cost/nccl_constants.hpp"

namespace sparfuse {

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
