// Declares selections by a reused threshold on a device.
#pragma once

#include <memory>

#include "core/sparsify/reused_threshold/reused_threshold_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

struct ReusedDeviceState final : SparsifierState {
  ReusedDeviceState(std::unique_ptr<SparsifierState> inner, Device device)
      : inner(std::move(inner)), words(1, device, "a reused threshold") {}
  std::unique_ptr<SparsifierState> inner;
  std::uint64_t calls = 0;  // wanted or not: whether they are, the host does not know
  double density = 0;       // that the threshold is for
  Buffer<ReusedWords> words;
};

// `inner` selects, and its threshold is learned.
void EstimateReusedOnDevice(const Sparsifier& inner, const DeviceContext& context,
                            const SelectSource& source, double density, const TensorInfo& info,
                            ReusedDeviceState& state, DeviceSlot& slot);

// What reaches the threshold; `inner` selects where that is too little or too much.
void SelectReusedOnDevice(const Sparsifier& inner, const DeviceContext& context,
                          const SelectSource& source, double density, const TensorInfo& info,
                          ReusedDeviceState& state, DeviceSlot& slot);

}  // namespace sparfuse
