// Declares SIDCo's selection on a device.
#pragma once

#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/sidco/sidco_fits.hpp"

namespace sparfuse {

struct SidcoDeviceState final : SparsifierState {
  explicit SidcoDeviceState(Device device)
      : memory(1, device, "SIDCo's stages"), bound(1, device, "the warm start of a selection") {}
  Buffer<SidcoMemory> memory;  // all zero at first
  int most_stages = 1;         // that it may have come to, which the host does not know
  Buffer<WarmWords> bound;
};

// x has more than k elements; state: or null.
//
// Cost: one pass over x. Where the boundaries between stages are not known from the step before,
// one block fits them to a sample, of tensors below kFitSampledFrom elements to all of x, and to
// all of a larger one where the sample has not enough elements that are not zero.
void SelectSidcoOnDevice(const DeviceContext& context, const DeviceInput& input,
                         const TensorInfo& info, const SidcoOptions& options, double density,
                         std::size_t k, SidcoDeviceState* state, const DeviceSlot& slot);

// As in the paper. Cost: a pass over x for each stage, and one.
void SelectSidcoPaperOnDevice(const DeviceContext& context, const DeviceInput& input,
                              const TensorInfo& info, const SidcoOptions& options, double density,
                              std::size_t k, SidcoDeviceState* state, const DeviceSlot& slot);

}  // namespace sparfuse
