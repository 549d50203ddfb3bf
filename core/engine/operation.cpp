#include "core/engine/operation.hpp"

#include "core/collective/collective.hpp"

namespace sparfuse {

std::size_t Op::elements() const {
  std::size_t sum = 0;
  for (const Range& part : parts) sum += part.size();
  return sum;
}

const Collective& CollectiveOf(const Op& exchange, const std::shared_ptr<const Collective>& dense,
                               const std::shared_ptr<const Collective>& sparse) {
  switch (exchange.pattern) {
    case Pattern::kReduceScatter:
      if (exchange.sparse) return SparseReduceScatter();
      return exchange.f16 ? F16ReduceScatter() : RingReduceScatter();
    case Pattern::kAllGather:
      return exchange.f16 ? F16AllGather() : RingAllGather();
    case Pattern::kFromOwner:
      return SparseBroadcast();
    case Pattern::kSum:
      break;
  }
  if (exchange.f16) return F16AllReduce();
  static const auto kGathered = CoreCollective("sparse-allgather");
  if (exchange.sparse && exchange.shared && exchange.shared->parts > 1) return *kGathered;
  return exchange.sparse ? *sparse : *dense;
}

}  // namespace sparfuse
