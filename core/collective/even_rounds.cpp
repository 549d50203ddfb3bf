#include "core/collective/even_rounds.hpp"

#include "core/collective/algorithms.hpp"

namespace sparfuse {

bool AddModelledEvenRounds(const Collective& collective, std::uint64_t payload_bytes,
                           const Topology& topology, AllGatherBy gathered_by, RoundPlan& plan) {
  const CollectiveDescriptor& which = collective.descriptor();
  if (which.sums_on_host) return false;
  if (which.of_library && which.payload == PayloadKind::kSparse &&
      gathered_by == AllGatherBy::kTwoLevel) {
    AddEvenTwoLevelAllGatherRounds(payload_bytes, topology, plan.rounds);
    return true;
  }
  const auto* even = dynamic_cast<const EvenCollective*>(&collective);
  if (even == nullptr) return false;
  even->AddEvenRounds(payload_bytes, topology, plan.rounds);
  return true;
}

}  // namespace sparfuse
