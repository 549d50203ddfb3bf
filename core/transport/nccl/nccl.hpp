// Makes transport `nccl`: collectives on the memory of one CUDA device per rank, from card to card.
//
// A communicator has an ncclComm, a stream of the device, and a host communicator (mpi, threads)
// over the same ranks. host() carries messages in host memory: counts, negotiations, probes, and
// the collectives that consist of messages.
//
// NativeAllReduceSum   ncclAllReduce.
// NativeAllGather      counts through the host, then either a group of messages of true size or
//                      ncclAllGather padded to the largest, whichever costs less by the model
//                      below.
// NativeRingStep       a group of ncclSend and ncclRecv; profiles measure links with it.
// Isend, Irecv         Error{kUnsupported}.
//
// Collectives start in the order in which they are posted, which must be the same on all ranks.
// NCCL runs them in the order in which a rank starts them, and each ends only when all ranks have
// reached it. A ProgressLoop over NCCL needs the NCCL world as its world: only this world's Idle
// polls the device often.
//
// Memory is read and written in the order of stream(). Before posting, let that stream wait for all
// writers of the sent buffer and all readers of the receive buffer. A request is complete, for the
// host and for every stream, when Test returns true. It must not outlive its communicator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/transport/communicator.hpp"
#include "core/transport/nccl/api.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// The links of a cost model, which compares two ways to gather payloads of unequal bytes.
//
// There are P ranks. Rank r has m_r bytes, and M is the largest m_r. A link class has a start-up
// time alpha and a time per byte beta: inside a node for each card's own port, between nodes for
// the network card that a node's ranks share. Both directions work at once. "slowest" is the class
// between nodes if there are several nodes.
//
//   grouped   every rank sends its payload to each other rank, all of them under way together:
//               alpha_slowest + (P - 1) message + max(beta_intra B_intra, beta_inter B_inter)
//             B_intra: most bytes out of or into one rank from ranks of its node;
//             B_inter: most bytes out of or into one node. A payload enters a node once for each
//             rank there, so this suits payloads with few large ones.
//   padded    all payloads padded to M, an all-gather in a ring, in which a payload enters a node
//             once (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005):
//               (P - 1) (alpha_slowest + beta_slowest M)
//
// The model omits NCCL's use of several network cards or of the switch (NVLS).
//
// The defaults are declared, not measured: start-up times of NCCL's ring with the simple protocol
// (hwLat of its tuning tables, 2.18 and later), one direction of an A100's NVLink, one 100 Gb/s
// card per node; `message` is a guess. Set the values of your cluster if the choice matters.
struct AllGatherLinks {
  std::array<double, kLinkClasses> alpha_seconds{3.4e-6, 14e-6};  // by LinkClass
  std::array<double, kLinkClasses> seconds_per_byte{1 / 300e9, 1 / 12.5e9};
  double message_seconds = 1e-6;
  bool operator==(const AllGatherLinks&) const = default;
};

enum class AllGatherAlgorithm : std::uint8_t { kGrouped, kPadded };

// sizes[r]: bytes of rank r's payload; one for each of topology.ranks.
double GroupedAllGatherSeconds(std::span<const std::uint64_t> sizes, const Topology& topology,
                               const AllGatherLinks& links);
double PaddedAllGatherSeconds(std::span<const std::uint64_t> sizes, const Topology& topology,
                              const AllGatherLinks& links);
// Returns the cheaper algorithm; grouped if both cost the same. Equal arguments give equal answers
// on all ranks.
AllGatherAlgorithm CheaperAllGather(std::span<const std::uint64_t> sizes, const Topology& topology,
                                    const AllGatherLinks& links);

struct NcclSetup {
  // Communicator over the participating ranks; from here on only `nccl` uses it.
  std::unique_ptr<Communicator> host;
  Device device;
  // Names this rank's card among those of all hosts: its UUID. At most 63 characters.
  std::string card;
  // Deadline of set-up and destruction. Requests have no deadline of their own: ProgressLoop has
  // it.
  std::chrono::milliseconds deadline{60'000};
  AllGatherLinks links;  // equal on all ranks
};

// Collective over setup.host, blocking up to the deadline; `api` outlives the communicator. Throws
//   Error{kUnsupported} naming the ranks if two of them have the same card;
//   Error{kConfig} if ranks have different versions of NCCL or different link constants;
//   Error{kTimeout} naming the ranks that did not come;
//   NcclError (handle.hpp).
//
// After an error of NCCL, of a peer or of the device, or when an unfinished request is destroyed,
// the communicator is aborted: its work on the device ends, it notifies peers, and every request
// then throws that error. A peer that the host transport lost is Error{kComm} "rank 2 is lost": at
// once for collectives that it has not started, after half a second for running ones. Split makes
// an ncclComm and a stream of its own. Destroying a sound communicator waits, up to the deadline,
// for the other ranks of the node to do so: destroy communicators in the same order everywhere.
std::unique_ptr<Communicator> MakeNcclWorld(const NcclApi& api, NcclSetup setup);

}  // namespace sparfuse
