#include "core/engine/operation.hpp"

#include <string>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse {
namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

}  // namespace

const std::string& Op::label() const {
  static const std::string kNone;
  return If<ExchangeRequest>() ? exchange().label : kNone;
}

std::size_t Op::elements() const {
  std::size_t sum = 0;
  for (const Range& part : parts) sum += part.size();
  return sum;
}

SpanKind SpanKindOf(const Op& local) {
  if (const auto* pack = local.If<PackRequest>()) {
    return pack->source == PackSource::kGradient ? SpanKind::kPack : SpanKind::kOuter;
  }
  if (local.If<SparsifyRequest>()) return SpanKind::kSparsify;
  const auto* apply = local.If<ApplyRequest>();
  return apply != nullptr && apply->to != ApplyTo::kGradient ? SpanKind::kOuter
                                                             : SpanKind::kDecompress;
}

const Collective& CollectiveOf(const ExchangeRequest& exchange,
                               const std::shared_ptr<const Collective>& dense,
                               const std::shared_ptr<const Collective>& sparse) {
  static const auto kGathered = CoreCollective("sparse-allgather");
  using Does = const Collective&;
  return std::visit(
      Match{[&](const DenseSum&) -> Does { return *dense; },
            [](const HalvesSum&) -> Does { return F16AllReduce(); },
            [](const SumShards& of) -> Does {
              return of.halves ? F16ReduceScatter() : RingReduceScatter();
            },
            [](const GatherShards& of) -> Does {
              return of.halves ? F16AllGather() : RingAllGather();
            },
            [&](const SparseSum&) -> Does { return *sparse; },
            [](const ToOwners&) -> Does { return SparseReduceScatter(); },
            [&](const SharedSum& of) -> Does { return of.shared.parts > 1 ? *kGathered : *sparse; },
            [](const FromOwner&) -> Does { return SparseBroadcast(); }},
      exchange.pattern);
}

std::vector<ExchangedTensor> TensorsOfExchange(const GradientLayout& layout, Range range) {
  std::vector<ExchangedTensor> tensors;
  for (const std::size_t t : layout.TensorsIn(range)) {
    const TensorEntry& tensor = layout.tensor(t);
    if (tensor.offset < range.begin || tensor.offset + tensor.numel > range.end) {
      SPARFUSE_THROW(kConfig, "the exchange of elements ", range.begin, " to ", range.end,
                     " cuts tensor \"", tensor.name,
                     "\", but its collective works on whole tensors: expected a "
                     "strategy that sends these, say \"behind\"");
    }
    tensors.push_back(
        {static_cast<std::uint32_t>(t), tensor.offset - range.begin, tensor.numel, tensor.shape});
  }
  return tensors;
}

}  // namespace sparfuse
