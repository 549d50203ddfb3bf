#include "core/sparsify/adtopk/kept_threshold_device.hpp"

#include <algorithm>

#include "core/device/launch.hpp"

namespace sparfuse {

void BeginPhaseOnDevice(const DeviceContext& context, KeptThreshold* kept, bool warming,
                        bool ending) {
  gpu::Launch(context.stream, 1, gpu::BeginPhase{kept, warming, ending}, context.only_if);
}

void SendByThreshold(const DeviceContext& context, const DeviceInput& input, const TensorInfo& info,
                     std::size_t k, KeptThreshold* kept, bool warming, DeviceSlot& slot) {
  const Stream& stream = context.stream;
  DeviceContext wanted = context;
  wanted.only_if = &kept->estimates;
  // A bound that more than 2k elements reach tells whether too many reach the threshold.
  DeviceScan scan =
      PrepareScan(wanted, input, info, k, slot, {.wanted = std::min(input.n, 2 * k + 1)});
  const auto count = static_cast<std::uint32_t>(k);
  gpu::Launch(stream, 1, gpu::ChooseReaching{kept, scan.control, count}, scan.active());
  CollectOnDevice(wanted, scan);
  SendReaching(wanted, scan, slot);
  const std::size_t blocks = std::clamp<std::size_t>(k / (8 * gpu::FindSmallest::kThreads), 1, 256);
  gpu::Launch(stream, blocks, gpu::FindSmallest{scan.control, slot.values, slot.report, kept},
              scan.active());
  gpu::Launch(stream, 1, gpu::LearnThreshold{scan.control, kept, slot.report, warming},
              scan.active());
}

}  // namespace sparfuse
