// Selects a part of a tensor by scanning it: the shared frame of the sparsifiers that count
// elements or compare them with a threshold.
#pragma once

#include <cstddef>
#include <memory>

#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// The aim of a selection: k = Kept(n, density) elements.
struct Aim {
  double density = 1;
  std::size_t k = 0;
};

// Checks the arguments, sends all of x if k = n, and otherwise calls SelectPart.
class ScanSparsifier : public Sparsifier {
 public:
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const final;

 protected:
  // The number of elements that a slot must have room for. If it is n, all of x is sent.
  virtual std::size_t Kept(std::size_t n, double density) const { return Count(n, {}, density); }

  // Selects from an x with more than aim.k elements into a slot with room for aim.k.
  virtual void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Aim& aim, SparsifierState* state, Slot& slot) const = 0;
};

// A ScanSparsifier with kernels: SelectPartOnDevice is SelectPart on a device.
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

// A sparsifier that remembers only a bound near each tensor's k-th magnitude (WarmBound). On a
// device it sends the k largest, bit for bit as SelectLargest does, unless SelectPartOnDevice is
// overridden: in one launch for kOneBlock elements or fewer, else in four, the last of which does
// nothing as a rule. The bound decides the time taken, never the result.
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
