// Holds the one explicit table of core's collectives, and makes collectives of descriptors.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {

std::unique_ptr<Collective> MakeCollective(const CollectiveDescriptor& descriptor,
                                           const Options& given) {
  const Options resolved =
      ResolveOptions("collective " + std::string(descriptor.name), descriptor.options, given);
  std::unique_ptr<Collective> made = descriptor.make(resolved);
  made->descriptor_ = &descriptor;
  made->traits_ = descriptor.TraitsOf(resolved);
  return made;
}

std::span<const CollectiveDescriptor> CoreCollectives() {
  static const std::array kCollectives{RingAllReduce(),          NativeAllReduce(),
                                       SparseAllGather(),        NcclAllGather(),
                                       SharedIndicesAllReduce(), ParameterServer()};
  return kCollectives;
}

std::shared_ptr<const Collective> CoreCollective(std::string_view name) {
  static const auto kMade = [] {
    std::map<std::string_view, std::shared_ptr<const Collective>> made;
    for (const CollectiveDescriptor& each : CoreCollectives()) {
      made[each.name] = MakeCollective(each);
    }
    return made;
  }();
  const auto found = kMade.find(name);
  if (found == kMade.end()) {
    SPARFUSE_THROW(kInternal, "core has no collective named \"" + std::string(name) + "\"");
  }
  return found->second;
}

ExchangeSizes ExpectedSizes(const Collective& collective, const ExchangeShape& shape,
                            std::vector<std::uint64_t> payload_bytes, const OverlapModel& overlap,
                            const Topology& topology) {
  ExchangeSizes sizes{shape, std::move(payload_bytes), {}};
  collective.Expect(overlap, topology, sizes);
  return sizes;
}

RoundPlan ModelledRounds(const Collective& collective, const ExchangeSizes& sizes,
                         const Topology& topology, AllGatherBy gathered_by) {
  constexpr std::uint64_t kWord = 4;
  const CollectiveDescriptor& which = collective.descriptor();
  if (which.of_library && which.payload == PayloadKind::kSparse &&
      gathered_by == AllGatherBy::kTwoLevel) {
    return TwoLevelAllGatherRounds(sizes.payload_bytes, topology);
  }
  RoundPlan plan = collective.Rounds(sizes, topology);
  if (!which.sums_on_host) return plan;
  Round copies;
  copies.messages = 0;
  copies[Work::kToHost] = std::ranges::max(sizes.payload_bytes) / kWord;
  const std::uint64_t words_each = plan.dense_sums ? 1 : kSparseElementBytes / kWord;
  copies[Work::kToDevice] = words_each * plan.sums.value_or(0);
  plan.rounds.push_back(copies);
  plan.on_host = true;
  return plan;
}

}  // namespace sparfuse
