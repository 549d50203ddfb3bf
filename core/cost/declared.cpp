#include "core/cost/declared.hpp"

#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

CostModel DeclaredCost(double gbps, double alpha_seconds, const std::string& sparsifier) {
  const PiecewiseLinear local({{0, 1e-6}, {1e6, 1e-6 + 1e-3}});
  constexpr double kAnyDensity = 0.01;  // one curve holds for all
  CostModel cost;
  for (const SparsifierDescriptor& known : Sparsifiers()) {
    cost.selection[std::string(known.name)].Add(kAnyDensity, local);
  }
  if (!sparsifier.empty() && !cost.selection.contains(sparsifier)) {
    cost.selection[sparsifier].Add(kAnyDensity, local);
  }
  for (const QuantizerDescriptor& quantizer : Quantizers()) {
    cost.encode_seconds[std::string(quantizer.name)] = local;
  }
  cost.pack_seconds = local;
  cost.links.fill(LinkCost::FromAlphaBeta(alpha_seconds, 8 / (gbps * 1e9)));
  return cost;
}

}  // namespace sparfuse
