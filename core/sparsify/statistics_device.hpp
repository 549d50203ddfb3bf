// Measuring in the pass of a scan that collects; and an estimate that is decided there.
#pragma once

#include <cmath>

#include "core/sparsify/collect_with_measure.hpp"
#include "core/sparsify/scan_options.hpp"
#include "core/sparsify/statistics_kernels.hpp"

namespace sparfuse {

// CollectOnDevice, which measures all of x, too, and calls use(statistics) in one thread of the
// device at its end.
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

// Lets SendReaching correct an estimate. One thread. What is not a number raises `fallbacks`.
SPARFUSE_DEVICE void AimAt(double estimate, ScanControl* control, SlotReport* report) {
  const bool number = !std::isnan(estimate);
  control->key = number ? KeyAbove(estimate) : kInfinityKey;
  if (!number) ++report->fallbacks;
}

}  // namespace gpu
}  // namespace sparfuse
