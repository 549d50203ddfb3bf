// Selects a part of a tensor in scans of it: the shared frame of the sparsifiers that count
// elements or compare them with a threshold.
#pragma once

#include <cstddef>
#include <memory>

#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// What a selection aims at: k = Kept(n, density) elements.
struct Aim {
  double density = 1;
  std::size_t k = 0;
};

// Checks the arguments, sends all of x if the aim is all of it, and leaves the rest to SelectPart.
class ScanSparsifier : public Sparsifier {
 public:
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const final;

 protected:
  // Elements for which a slot must have room. All of x is sent if they are n.
  virtual std::size_t Kept(std::size_t n, double density) const { return KeptCount(n, density); }

  // Select of an x with more than aim.k elements, into a slot with room for them.
  virtual void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Aim& aim, SparsifierState* state, Slot& slot) const = 0;
};

// The same with kernels: SelectPartOnDevice is SelectPart on a device.
class DeviceScanSparsifier : public ScanSparsifier {
 public:
  bool SelectsOnDevice() const noexcept final { return true; }
  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state, DeviceSlot& slot) const final;

 protected:
  virtual void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                                  const TensorInfo& info, const Aim& aim, SparsifierState* state,
                                  DeviceSlot& slot) const = 0;
};

// A sparsifier that remembers of a tensor where its k-th magnitude was (WarmBound), and nothing
// else. On a device it sends the k largest, if SelectPartOnDevice does not say otherwise.
class WarmSparsifier : public DeviceScanSparsifier {
 public:
  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const final;
  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const override;
  bool SelectsApart() const noexcept final { return true; }

 protected:
  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* state,
                          DeviceSlot& slot) const override;
};

}  // namespace sparfuse
