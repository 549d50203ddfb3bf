// Selections on the devices that tests run on, beside the same ones on the host.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu/runtime.hpp"
#include "core/sparsify/on_device.hpp"
#include "tests/sparsifier_oracle.hpp"

namespace sparfuse::testing {

// The emulated device always; the card where there is one.
class OnDevices : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCuda && CudaDeviceCount() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  Device device() const { return {GetParam(), 0}; }
};

inline std::string DeviceKindName(const ::testing::TestParamInfo<DeviceKind>& info) {
  return info.param == DeviceKind::kCuda ? "Cuda" : "Emulated";
}
#define SPARFUSE_ON_DEVICES(Suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                              \
                           ::testing::Values(DeviceKind::kEmulated, DeviceKind::kCuda), \
                           ::sparfuse::testing::DeviceKindName)

template <class T>
Buffer<T> ToDevice(const Stream& stream, const std::vector<T>& host) {
  Buffer<T> buffer(host.size(), stream.device);
  gpu::CopyAsync(stream, buffer.data(), host.data(), host.size() * sizeof(T));
  gpu::Synchronize(stream);
  return buffer;
}

template <class T>
std::vector<T> ToHost(const Stream& stream, const T* data, std::size_t size) {
  std::vector<T> host(size);
  gpu::CopyAsync(stream, host.data(), data, size * sizeof(T));
  gpu::Synchronize(stream);
  return host;
}

// As Selection, on a device.
class DeviceSelection {
 public:
  // capacity: of the slot; 0: what the sparsifier's descriptor says.
  // misaligned: elements between an aligned address and the gradient, and the residual.
  DeviceSelection(const Sparsifier& sparsifier, Device device, std::size_t n, double density,
                  bool feedback, std::size_t capacity = 0, std::size_t misaligned_gradient = 0,
                  std::size_t misaligned_residual = 0)
      : sparsifier_(sparsifier),
        density_(density),
        shape_{static_cast<std::int64_t>(n)},
        stream_(device),
        workspace_(device),
        pool_(1),
        state_(sparsifier.MakeDeviceState(n, device)),
        gradient_shift_(misaligned_gradient),
        residual_shift_(misaligned_residual),
        gradient_(n + misaligned_gradient, device),
        residual_(feedback ? n + misaligned_residual : 0, device),
        capacity_(capacity != 0 ? capacity
                                : SlotCapacityFor(UnderTest().find(std::string(sparsifier.name())),
                                                  sparsifier, n, shape_, density)),
        indices_(capacity_ + kGuard, device),
        values_(capacity_ + kGuard, device),
        report_(1, device),
        only_if_(1, device) {
    SetOnlyIf(1);
  }

  void SetOnlyIf(std::uint32_t word) {
    gpu::CopyAsync(stream(), only_if_.data(), &word, sizeof(word));
    gpu::Synchronize(stream());
  }

  // Throws what TakeReport does.
  Selected Run(const std::vector<float>& gradient, std::uint64_t step, std::uint32_t id = 7) {
    const std::size_t n = gradient.size();
    gpu::CopyAsync(stream(), gradient_.data() + gradient_shift_, gradient.data(),
                   n * sizeof(float));
    gpu::FillAsync(stream(), indices_.data(), 0xee, indices_.size() * sizeof(std::uint32_t));
    gpu::FillAsync(stream(), values_.data(), 0xee, values_.size() * sizeof(float));
    gpu::FillAsync(stream(), report_.data(), 0, sizeof(SlotReport));
    gpu::Synchronize(stream());  // an error of the selection may end the life of all of these
    Workspace host_workspace;
    SelectCounters host_counters;
    const SelectContext host{&pool_, &host_workspace, &host_counters, {}};
    const SelectSource source{{gradient_.data() + gradient_shift_, n, stream()},
                              {residual_.size() == 0 ? nullptr : residual_.data() + residual_shift_,
                               residual_.size() == 0 ? 0 : n, stream()}};
    const TensorInfo info{id, "conv1.weight", shape_, step};
    DeviceSlot slot{indices_.data(), values_.data(), capacity_, report_.data()};
    sparsifier_.SelectOnDevice({stream(), &workspace_, only_if_.data(), &host}, source, density_,
                               info, state_.get(), slot);
    report_of_run_ = ToHost(stream(), report_.data(), 1)[0];
    const std::size_t count = TakeReport(report_of_run_, info, &counters_);
    EXPECT_LE(count, capacity_);
    Selected selected;
    selected.indices = ToHost(stream(), indices_.data(), count);
    selected.values = ToHost(stream(), values_.data(), count);
    // Nothing is written behind what is sent.
    for (const std::uint32_t i :
         ToHost(stream(), indices_.data() + count, indices_.size() - count)) {
      if (i != 0xeeeeeeee) ADD_FAILURE() << "written behind the " << count << " sent elements";
    }
    return selected;
  }

  std::vector<float> Residual() {
    return ToHost(stream(), residual_.data() + residual_shift_, residual_.size() - residual_shift_);
  }
  void SetResidual(const std::vector<float>& residual) {
    gpu::CopyAsync(stream(), residual_.data() + residual_shift_, residual.data(),
                   residual.size() * sizeof(float));
    gpu::Synchronize(stream());
  }

  const Stream& stream() const { return stream_.view(); }
  const SelectCounters& counters() const { return counters_; }
  const SlotReport& report() const { return report_of_run_; }

 private:
  static constexpr std::size_t kGuard = 64;
  const Sparsifier& sparsifier_;
  double density_;
  std::vector<std::int64_t> shape_;
  gpu::GpuStream stream_;
  DeviceWorkspace workspace_;
  ThreadPool pool_;
  SelectCounters counters_;
  std::unique_ptr<SparsifierState> state_;
  std::size_t gradient_shift_;
  std::size_t residual_shift_;
  Buffer<float> gradient_;
  Buffer<float> residual_;
  std::size_t capacity_;
  Buffer<std::uint32_t> indices_;
  Buffer<float> values_;
  Buffer<SlotReport> report_;
  Buffer<std::uint32_t> only_if_;
  SlotReport report_of_run_;
};

}  // namespace sparfuse::testing
