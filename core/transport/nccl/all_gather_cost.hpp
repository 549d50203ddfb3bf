// Compares two ways to gather payloads of unequal bytes on every rank by what each costs.
//
// P ranks; m_r bytes of rank r, M the most of any. A link class has a start-up time alpha and a
// time for each byte beta: inside a node of every card's own port, between nodes of the network
// card that a node's ranks share; both directions at once. "slowest" is between nodes where there
// are several.
//
//   grouped   every rank sends its payload to each other rank, all of them under way together:
//               alpha_slowest + (P - 1) message + max(beta_intra B_intra, beta_inter B_inter)
//             B_intra: most bytes out of or into one rank from ranks of its node;
//             B_inter: most bytes out of or into one node. A payload enters a node once for each
//             rank there, so this is for payloads of which few are large.
//   padded    all payloads padded to M, an all-gather in a ring, in which a payload enters a node
//             once (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005):
//               (P - 1) (alpha_slowest + beta_slowest M)
//
// What NCCL does with several network cards, or in the switch (NVLS), is not in here.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/transport/topology.hpp"

namespace sparfuse {

// The defaults are declared, not measured: start-up times of NCCL's ring with the simple protocol
// (hwLat of its tuning tables, 2.18 and later), one direction of an A100's NVLink, one 100 Gb/s
// card a node; `message` is a guess. Give those of the cluster at hand where it matters.
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
// The cheaper one; grouped where both cost the same. Equal arguments give equal answers on all
// ranks.
AllGatherAlgorithm CheaperAllGather(std::span<const std::uint64_t> sizes, const Topology& topology,
                                    const AllGatherLinks& links);

}  // namespace sparfuse
