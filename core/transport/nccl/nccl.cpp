#include "core/transport/nccl/nccl.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/nccl/communicator.hpp"
#include "core/transport/nccl/handle.hpp"

namespace sparfuse {

namespace {

constexpr auto kIntra = static_cast<std::size_t>(LinkClass::kIntraNode);
constexpr auto kInter = static_cast<std::size_t>(LinkClass::kInterNode);

std::size_t Slowest(const Topology& topology) { return topology.nodes() > 1 ? kInter : kIntra; }

}  // namespace

double GroupedAllGatherSeconds(std::span<const std::uint64_t> sizes, const Topology& topology,
                               const AllGatherLinks& links) {
  const auto ranks = sizes.size();
  if (ranks <= 1) return 0;
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  std::uint64_t of_rank = 0;
  std::uint64_t of_node = 0;
  const auto per_node = static_cast<std::size_t>(topology.ranks_per_node);
  for (std::size_t first = 0; first < ranks; first += per_node) {
    const auto node = sizes.subspan(first, std::min(per_node, ranks - first));
    const auto in_node = std::accumulate(node.begin(), node.end(), std::uint64_t{0});
    for (const std::uint64_t bytes : node) {
      of_rank = std::max({of_rank, (node.size() - 1) * bytes, in_node - bytes});
    }
    of_node = std::max({of_node, in_node * (ranks - node.size()), (total - in_node) * node.size()});
  }
  return links.alpha_seconds[Slowest(topology)] +
         static_cast<double>(ranks - 1) * links.message_seconds +
         std::max(links.seconds_per_byte[kIntra] * static_cast<double>(of_rank),
                  links.seconds_per_byte[kInter] * static_cast<double>(of_node));
}

double PaddedAllGatherSeconds(std::span<const std::uint64_t> sizes, const Topology& topology,
                              const AllGatherLinks& links) {
  if (sizes.size() <= 1) return 0;
  const std::size_t slowest = Slowest(topology);
  const auto largest = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
  return static_cast<double>(sizes.size() - 1) *
         (links.alpha_seconds[slowest] + links.seconds_per_byte[slowest] * largest);
}

AllGatherAlgorithm CheaperAllGather(std::span<const std::uint64_t> sizes, const Topology& topology,
                                    const AllGatherLinks& links) {
  return PaddedAllGatherSeconds(sizes, topology, links) <
                 GroupedAllGatherSeconds(sizes, topology, links)
             ? AllGatherAlgorithm::kPadded
             : AllGatherAlgorithm::kGrouped;
}

namespace {

// A rank's data for the others, exchanged before they make a communicator.
struct Introduction {
  std::array<char, 64> card{};  // zero-terminated
  NcclUniqueId id{};            // only rank 0's is used
  int version = 0;
  AllGatherLinks links;
};

void CheckIntroductions(std::span<const Introduction> all) {
  for (std::size_t r = 1; r < all.size(); ++r) {
    for (std::size_t earlier = 0; earlier < r; ++earlier) {
      if (all[r].card != all[earlier].card) continue;
      SPARFUSE_THROW(kUnsupported, "nccl: ranks ", earlier, " and ", r, " have the same card, ",
                     all[r].card.data(), kShareACard);
    }
    if (all[r].version != all[0].version) {
      SPARFUSE_THROW(kConfig, "nccl: rank ", r, " has NCCL of version code ", all[r].version,
                     ": expected ", all[0].version, ", as rank 0");
    }
    if (all[r].links != all[0].links) {
      SPARFUSE_THROW(kConfig, "nccl: ranks 0 and ", r,
                     " have different link constants: expected equal constants, so "
                     "that all ranks choose alike");
    }
  }
}

}  // namespace

std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup) {
  Introduction own;
  SPARFUSE_REQUIRE(!setup.card.empty() && setup.card.size() < own.card.size(), "nccl: card \"",
                   setup.card, "\": expected a name of 1 to ", own.card.size() - 1, " characters");
  const auto call = [&](int result, const char* name) {
    if (result != kNcclSuccess) throw NcclError(api, result, name, nullptr);
  };
  std::copy(setup.card.begin(), setup.card.end(), own.card.begin());
  own.links = setup.links;
  call(api.get_version(&own.version), "ncclGetVersion");
  if (setup.host->rank() == 0) call(api.get_unique_id(&own.id), "ncclGetUniqueId");

  const std::vector<Introduction> all = GatherFromPeers(*setup.host, own, setup.deadline, "nccl");
  CheckIntroductions(all);
  auto control = setup.host->Split(0, setup.host->rank(), setup.deadline);
  auto communicator = std::make_unique<NcclCommunicator>(api, std::move(session), std::move(setup),
                                                         std::move(control));
  communicator->Connect(all[0].id);
  return communicator;
}

std::unique_ptr<Communicator> MakeNcclWorld(const NcclApi& api, NcclSetup setup) {
  return MakeNcclGroup(api, std::make_shared<NcclSession>(), std::move(setup));
}

#ifndef SPARFUSE_CUDA
const NcclApi& LinkedNccl() {
  SPARFUSE_THROW(kUnsupported,
                 "transport \"nccl\": this build has no CUDA and no NCCL (sparfuse doctor)");
}
#endif

}  // namespace sparfuse
