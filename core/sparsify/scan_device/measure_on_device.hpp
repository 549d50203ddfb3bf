// Measures in the pass of a scan that collects, and decides there what an estimate selects.
#pragma once

#include <cmath>

#include "core/sparsify/scan_device/collect_with_measure.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"
#include "core/sparsify/scan_device/statistics_kernels.hpp"
#include "core/sparsify/scan_device/threshold_scan.hpp"

namespace sparfuse {

// CollectOnDevice, which measures all of x, too, and calls use(block, statistics) in one block of
// the device at its end.
//
//   kAll   tails and logarithms beside the moments, as `wanted` and `tails` (on the device) say.
//   Use    trivially copyable; sparfuse::gpu::Collect<sparfuse::gpu::Measure<kAll, Use>> is named
//          in a .cu file.
template <bool kAll, class Use>
void CollectAndMeasureOnDevice(const DeviceContext& context, DeviceScan& scan, const Use& use,
                               const gpu::Wanted& wanted = {},
                               const gpu::TailKeys* tails = nullptr) {
  using Measure = gpu::Measure<kAll, Use>;
  double* const parts = context.workspace->Get<double>(context.stream, kUseParts,
                                                       Measure::Part::kValues * scan.plan.spans);
  CollectWithMeasure(context, scan,
                     Measure{scan.input.n, static_cast<std::uint32_t>(scan.plan.spans), parts,
                             scan.control->measured, wanted, tails, use});
}

namespace gpu {

// Turns an estimated threshold into the key that SendReaching uses.
struct ThresholdCorrection {
  std::uint32_t needed;  // candidates, so that a key below them all is known to select too many
  ScanControl* control;
  SlotReport* report;

  // Called by all threads of a block; thread 0 knows the estimate. Counts a fallback where the
  // estimate is not a number, and where the candidates' bound was too high: then it asks for a
  // second collection.
  template <class Block>
  SPARFUSE_DEVICE void Apply(Block& block, double estimate) const {
    const bool first = block.thread() == 0;
    const bool number = !std::isnan(estimate);
    if (first) control->key = number ? KeyAbove(estimate) : kInfinityKey;
    if (first && !number) ++report->fallbacks;
    block.Sync();
    const std::uint32_t key = control->key;
    if (control->count >= needed || key >= control->lo) return;
    if (first) ++report->fallbacks;
    WantRecollected(block, control, key);
  }
};

}  // namespace gpu

// Of a scan that Correcting prepared.
inline gpu::ThresholdCorrection CorrectionOf(const DeviceScan& scan) {
  return {static_cast<std::uint32_t>(NeededToCorrect(scan.input.n, scan.k)), scan.control,
          scan.report};
}

}  // namespace sparfuse
