// Keeps the part of the gradient that is not sent yet.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// Named residuals, each one flat array over the whole gradient in ready order, so that a plan may
// change without moving what is in them. Zero at first. Not thread-safe across equal names.
class ResidualStore {
 public:
  // numel: elements of the flat gradient.
  explicit ResidualStore(std::size_t numel, Device device = {})
      : numel_(numel), device_(device), workspace_(device) {}

  // The elements of `range` of the residual called `name`, made on first use.
  DeviceSpan<float> Get(std::string_view name, Range range);

  std::vector<std::string> names() const;

  // Euclidean norm over all residuals, in the order of SumSquares (norm.hpp) in each. On a device
  // it waits, and all work on residuals must be done.
  double Norm();

 private:
  std::size_t numel_;
  Device device_;
  std::map<std::string, Buffer<float>, std::less<>> stores_;
  DeviceWorkspace workspace_;  // of Norm
  Buffer<double> norm_;
};

}  // namespace sparfuse
