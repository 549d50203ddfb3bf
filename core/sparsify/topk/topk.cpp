// Selects by exact top-k: keeps the k = max(1, trunc(density * n)) elements of largest magnitude.
//
// Source:      A. F. Aji, K. Heafield, "Sparse communication for distributed gradient descent",
//              EMNLP 2017; with error feedback, D. Alistarh et al., "The convergence of sparsified
//              gradient methods", NeurIPS 2018.
// Deviations:  none known. Ties go to the lower index, so the result is unique.
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

class TopK final : public WarmSparsifier {
 public:
  std::string_view name() const noexcept override { return "topk"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* state, Slot& slot) const override {
    SelectLargestWarm(context, input, info, aim.k, BoundOf(state), slot);
  }
};

}  // namespace

SparsifierDescriptor TopKDescriptor() {
  return {.name = "topk",
          .paper = "Aji & Heafield, EMNLP 2017",
          .exact_count = true,
          .contraction = KeptFraction,
          .make = MakePlain<TopK>,
          .reusable_threshold = true};
}

}  // namespace sparfuse
