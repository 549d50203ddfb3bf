// Selects all elements above a threshold that the user gives.
//
// Source:      N. Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
//              Interspeech 2015, section 3; values as they are, as in H. Xu et al., "GRACE: a
//              compressed communication framework for distributed machine learning", ICDCS 2021.
// Deviations:  values are sent, not signs times tau. If nothing exceeds tau, or the slot overflows,
//              an exact top-k at the density is sent.

#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

class Threshold final : public DeviceScanSparsifier {
 public:
  explicit Threshold(float tau) : tau_(tau) {}

  std::string_view name() const noexcept override { return "threshold"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    TakeReaching(context, input, info, KeyAbove(tau_), aim.k, slot);
  }

  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* /*state*/,
                          DeviceSlot& slot) const override {
    DeviceScan scan = PrepareScan(context, input, info, aim.k, slot,
                                  Reaching(input.n, aim.k, KeyAbove(tau_), slot));
    CollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
  }

 private:
  float tau_;
};

}  // namespace

SparsifierDescriptor ThresholdDescriptor() {
  return {.name = "threshold",
          .paper = "Strom, Interspeech 2015",
          .selection_model = {1.844, 1.813},
          .contraction = OneElement,
          .deviations =
              "Values are sent as they are, not as a sign times tau. The count follows tau and the "
              "data, not the density: an exact top-k at the density is sent only of a tensor "
              "without an element above tau, with density 1, and after an overflow of the slot.",
          .options = {NumberOption("tau", 0.01, 0, 1e30,
                                   "threshold: elements with |x| > tau are sent")},
          .make = [](const Options& resolved, std::uint64_t) -> std::unique_ptr<Sparsifier> {
            return std::make_unique<Threshold>(static_cast<float>(DoubleOption(resolved, "tau")));
          },
          .unbounded_count = true};
}

}  // namespace sparfuse
