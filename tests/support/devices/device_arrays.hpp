// Holds a stream and arrays for tests of code that runs on devices.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"
#include "core/sparsify/device_selection.hpp"
#include "tests/support/bits.hpp"
#include "tests/support/devices/devices.hpp"

namespace sparfuse {

using testing::Bits;
using testing::DeviceName;
using testing::kInfinity;
using testing::kNan;
using testing::TheDevices;

// Runs every test on the emulated device and, if the machine has one, on a card.
class OnDevices : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    const std::string why = testing::WhyNotOn(GetParam());
    if (!why.empty()) GTEST_SKIP() << why;
    stream_ = gpu::GpuStream({GetParam(), 0});
    workspace_ = DeviceWorkspace(stream_.view().device);
  }

  const Stream& stream() const { return stream_.view(); }
  DeviceWorkspace& workspace() { return workspace_; }

 private:
  gpu::GpuStream stream_;
  DeviceWorkspace workspace_{Device{DeviceKind::kEmulated, 0}};
};

// An array on a stream's device, filled from the host.
template <class T>
class DeviceArray {
 public:
  // offset: elements by which the array begins behind an aligned address.
  DeviceArray(const Stream& stream, std::span<const T> from, std::size_t offset = 0)
      : stream_(stream), buffer_(offset + from.size(), stream.device), offset_(offset) {
    gpu::CopyAsync(stream_, data(), from.data(), from.size_bytes());
    gpu::Synchronize(stream_);
  }
  DeviceArray(const Stream& stream, const std::vector<T>& from, std::size_t offset = 0)
      : DeviceArray(stream, std::span<const T>(from), offset) {}
  // An array of zeros.
  DeviceArray(const Stream& stream, std::size_t size, std::size_t offset = 0)
      : stream_(stream), buffer_(offset + size, stream.device), offset_(offset) {}

  T* data() const { return buffer_.data() + offset_; }
  std::size_t size() const { return buffer_.size() - offset_; }
  DeviceSpan<T> view() const { return {data(), size(), stream_}; }
  DeviceSpan<const T> read() const { return {data(), size(), stream_}; }

  // The values after all work of the stream.
  std::vector<T> ToHost() const {
    std::vector<T> host(size());
    gpu::CopyAsync(stream_, host.data(), data(), host.size() * sizeof(T));
    gpu::Synchronize(stream_);
    return host;
  }

 private:
  Stream stream_;
  Buffer<T> buffer_;
  std::size_t offset_;
};

}  // namespace sparfuse
