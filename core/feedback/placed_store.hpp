// Keeps residuals, or velocities, of an engine whose selections run on a device and, some of them,
// on the host beside it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/feedback/residual_store.hpp"

namespace sparfuse {

// A ResidualStore in two places, of which a tensor's elements are in one at a time: where they were
// last asked for. Not thread-safe. On the host alone it is a ResidualStore.
class PlacedStore {
 public:
  // layout: outlives it. device: the other place, or the host.
  PlacedStore(const GradientLayout& layout, Device device);

  // The elements of `range` of the residual called `name`, on that device, zero at first. Tensors
  // that were in the other place are moved, which waits for a copy; nobody else may be using them.
  DeviceSpan<float> Get(std::string_view name, Range range, Device where);

  // The same on the host wherever they are, valid until the next call. Changes nothing.
  std::span<const float> Read(std::string_view name, Range range);
  // The sum of all residuals that there are, likewise.
  std::span<const float> ReadAll(Range range);
  // As ResidualStore::Norm, over both places: what is in the other one is zero.
  double Norm();

 private:
  enum class Place : std::uint8_t { kNowhere, kDevice, kHost };  // kNowhere: zeros
  void Move(std::string_view name, std::size_t tensor, Place to);
  const Stream& Copies();

  const GradientLayout& layout_;
  Device device_;
  ResidualStore on_host_;
  ResidualStore on_device_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;  // [tensors] by name
  gpu::GpuStream copies_;                                          // made at first use
  gpu::PinnedBuffer<float> read_;
  std::vector<float> sum_;
};

}  // namespace sparfuse
