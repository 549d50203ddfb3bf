#include "core/transport/nccl/nccl.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>

#include "core/base/error.hpp"
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

Error NcclError(const NcclApi& api, int result, std::string_view call, void* comm) {
  std::string what = std::string(call) + ": " + api.error_string(result);
  const char* last = api.last_error(comm);
  std::string_view detail = last == nullptr ? "" : last;
  while (!detail.empty() && (detail.back() == '\n' || detail.back() == ' ')) {
    detail.remove_suffix(1);
  }
  if (!detail.empty()) what.append(": ").append(detail);
  if (detail.find("Duplicate GPU detected") != std::string_view::npos) {
    return Error(FailureKind::kUnsupported, what.append(kShareACard));
  }
  if (detail.find("out of memory") != std::string_view::npos) {
    return Error(FailureKind::kOutOfMemory, what);
  }
  const bool of_others = result == kNcclRemoteError || result == kNcclSystemError;
  return Error(of_others ? FailureKind::kComm : FailureKind::kInternal, what);
}

#ifndef SPARFUSE_CUDA
const NcclApi& LinkedNccl() {
  SPARFUSE_THROW(kUnsupported,
                 "transport \"nccl\": this build has no CUDA and no NCCL (sparfuse doctor)");
}
#endif

}  // namespace sparfuse
