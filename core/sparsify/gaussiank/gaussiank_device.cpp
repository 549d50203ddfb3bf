#include "core/sparsify/gaussiank/gaussiank_device.hpp"

#include "core/sparsify/gaussiank/gaussiank_kernels.hpp"

namespace sparfuse {

void SelectGaussianOnDevice(const DeviceContext& context, const DeviceInput& input,
                            const TensorInfo& info, std::size_t k, double z, WarmWords* warm,
                            const DeviceSlot& slot) {
  DeviceScan scan = PrepareScan(context, input, info, k, slot, Correcting(input.n, k, warm));
  CollectAndMeasureOnDevice<false>(context, scan, gpu::AimAtGaussian{z, CorrectionOf(scan)});
  RecollectOnDevice(context, scan);
  SendReaching(context, scan, slot);
}

void SelectGaussianPaperOnDevice(const DeviceContext& context, const DeviceInput& input,
                                 const TensorInfo& info, std::size_t k, double z,
                                 const DeviceSlot& slot) {
  auto* const step = context.workspace->Get<gpu::GaussianStep>(context.stream, kUseStep, 1);
  DeviceScan scan = PrepareScan(context, input, info, k, slot, NothingCollected());
  CollectAndMeasureOnDevice<false>(context, scan, gpu::ListTries{z, step});
  scan = PrepareScan(context, scan.input, info, k, slot, NothingCollected());
  CollectAndMeasureOnDevice<true>(context, scan, gpu::ChooseTry{k, step}, {}, &step->tries);
  scan = PrepareScan(context, scan.input, info, k, slot, Reaching(input.n, k, &step->key, slot));
  CollectOnDevice(context, scan);
  SendReaching(context, scan, slot);
}

}  // namespace sparfuse
