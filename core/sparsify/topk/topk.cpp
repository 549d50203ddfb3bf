// Selects by exact top-k: keeps the k = max(1, trunc(density * n)) elements of largest magnitude.
//
// Source:      A. F. Aji, K. Heafield, "Sparse communication for distributed gradient descent",
//              EMNLP 2017; with error feedback, D. Alistarh et al., "The convergence of sparsified
//              gradient methods", NeurIPS 2018.
// Deviations:  none known. Ties go to the lower index, so the result is unique.
#include "core/sparsify/topk/topk.hpp"

#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan/warm_bound.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {
namespace {

class TopK final : public Sparsifier {
 public:
  std::string_view name() const noexcept override { return "topk"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    return std::make_unique<WarmState>(n);
  }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t k = KeptCount(input.n, density);
    RequireRoom(name(), info, slot, k);
    if (k == input.n) return SelectAll(context, input, info, slot);
    SelectLargestWarm(context, input, info, k, BoundOf(state), slot);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device device) const override {
    return std::make_unique<DeviceWarmState>(device);
  }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    SelectTopKOnDevice(name(), context, source, density, info, state, slot);
  }
};

std::unique_ptr<Sparsifier> Make(const Options& /*resolved*/, std::uint64_t /*seed*/) {
  return std::make_unique<TopK>();
}

}  // namespace

SparsifierDescriptor TopKDescriptor() {
  return {.name = "topk",
          .paper = "Aji & Heafield, EMNLP 2017",
          .revision = 1,
          .exact_count = true,
          .index_shared = false,
          .selection_model = {},
          .contraction = KeptFraction,
          .deviations = "",
          .options = {},
          .make = Make,
          .reusable_threshold = true};
}

}  // namespace sparfuse
