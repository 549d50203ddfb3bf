// Lists the devices that tests run on: always the emulated one, and a card if the machine has one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/device/card.hpp"
#include "core/device/device.hpp"

namespace sparfuse::testing {

// The reason why a test cannot run on a device of this kind, or "".
inline std::string WhyNotOn(DeviceKind kind) {
  const std::string why = kind == DeviceKind::kCuda ? WhyNoCuda() : "";
  return why.empty() ? "" : "no CUDA device: " + why;
}

inline auto TheDevices() { return ::testing::Values(DeviceKind::kEmulated, DeviceKind::kCuda); }

inline std::string DeviceName(const ::testing::TestParamInfo<DeviceKind>& info) {
  return info.param == DeviceKind::kCuda ? "Cuda" : "Emulated";
}

}  // namespace sparfuse::testing
