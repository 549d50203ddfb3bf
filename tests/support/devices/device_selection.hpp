// Runs selections on the devices under test and compares them with the same selections on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/sparsify/device_selection.hpp"
#include "tests/support/devices/devices.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {

// The emulated device always; a card if the machine has one.
class OnDevices : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    const std::string why = WhyNotOn(GetParam());
    if (!why.empty()) GTEST_SKIP() << why;
  }
  Device device() const { return {GetParam(), 0}; }
};

#define SPARFUSE_ON_DEVICES(Suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::sparfuse::testing::TheDevices(), \
                           ::sparfuse::testing::DeviceName)

template <class T>
Buffer<T> ToDevice(const Stream& stream, const std::vector<T>& host) {
  Buffer<T> buffer(host.size(), stream.device, "a test");
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

// Like Selection, but on a device. Run calls Give, Launch and Take.
class DeviceSelection {
 public:
  // capacity: of the slot; 0 means the count that the sparsifier's descriptor gives.
  // misaligned: elements by which the gradient and the residual begin behind an aligned address.
  // shape: the shape of the n elements; {} is one dimension.
  DeviceSelection(const Sparsifier& sparsifier, Device device, std::size_t n, double density,
                  bool feedback, std::size_t capacity = 0, std::size_t misaligned_gradient = 0,
                  std::size_t misaligned_residual = 0, std::vector<std::int64_t> shape = {})
      : sparsifier_(sparsifier),
        n_(n),
        density_(density),
        shape_(shape.empty() ? std::vector{static_cast<std::int64_t>(n)} : std::move(shape)),
        stream_(device),
        workspace_(device),
        pool_(1),
        state_(sparsifier.MakeDeviceState(n, device)),
        gradient_shift_(misaligned_gradient),
        residual_shift_(misaligned_residual),
        gradient_(n + misaligned_gradient, device, "a gradient"),
        residual_(feedback ? n + misaligned_residual : 0, device, "a residual"),
        capacity_(capacity != 0 ? capacity
                                : SlotCapacityFor(UnderTest().find(std::string(sparsifier.name())),
                                                  sparsifier, n, shape_, density)),
        indices_(capacity_ + kGuard, device, "a slot"),
        values_(capacity_ + kGuard, device, "a slot"),
        report_(1, device, "a report"),
        only_if_(1, device, "a predicate") {
    SetOnlyIf(1);
  }

  // Owns the sparsifier, if nothing else needs it.
  DeviceSelection(std::unique_ptr<const Sparsifier> sparsifier, Device device, std::size_t n,
                  double density, bool feedback, std::size_t capacity = 0,
                  std::size_t misaligned_gradient = 0, std::size_t misaligned_residual = 0,
                  std::vector<std::int64_t> shape = {})
      : DeviceSelection(*sparsifier, device, n, density, feedback, capacity, misaligned_gradient,
                        misaligned_residual, std::move(shape)) {
    owned_ = std::move(sparsifier);
  }

  void SetOnlyIf(std::uint32_t word) {
    gpu::CopyAsync(stream(), only_if_.data(), &word, sizeof(word));
    gpu::Synchronize(stream());
  }

  // Fills the gradient, and resets the slot and the report.
  void Give(const std::vector<float>& gradient) {
    CopyGradient(stream(), gradient.data());
    gpu::FillAsync(stream(), indices_.data(), 0xee, indices_.size() * sizeof(std::uint32_t));
    gpu::FillAsync(stream(), values_.data(), 0xee, values_.size() * sizeof(float));
    gpu::FillAsync(stream(), report_.data(), 0, sizeof(SlotReport));
    gpu::Synchronize(stream());
  }
  void CopyGradient(const Stream& stream, const float* gradient) {
    gpu::CopyAsync(stream, gradient_.data() + gradient_shift_, gradient, n_ * sizeof(float));
  }

  enum class Predicate { kNone, kGiven };  // how SetOnlyIf set the predicate

  // Returns at once if the sparsifier selects on the device.
  void Launch(std::uint64_t step, std::uint32_t id = 7, Predicate predicate = Predicate::kNone) {
    const SelectContext host{&pool_, &host_workspace_, &host_counters_, {}};
    const SelectSource source{{gradient_.data() + gradient_shift_, n_, stream()},
                              {residual_.size() == 0 ? nullptr : residual_.data() + residual_shift_,
                               residual_.size() == 0 ? 0 : n_, stream()}};
    DeviceSlot slot{indices_.data(), values_.data(), capacity_, report_.data()};
    const std::uint32_t* const only_if = predicate == Predicate::kGiven ? only_if_.data() : nullptr;
    sparsifier_.SelectOnDevice({stream(), &workspace_, only_if, &host}, source, density_,
                               InfoOf(step, id), state_.get(), slot);
  }

  // The selected elements. Throws the errors of TakeReport.
  Selected Take(std::uint64_t step, std::uint32_t id = 7) {
    report_of_run_ = ToHost(stream(), report_.data(), 1)[0];
    const std::size_t count = TakeReport(report_of_run_, InfoOf(step, id), &counters_);
    EXPECT_LE(count, capacity_);
    Selected selected;
    selected.indices = ToHost(stream(), indices_.data(), count);
    selected.values = ToHost(stream(), values_.data(), count);
    if (!UntouchedFrom(count)) ADD_FAILURE() << "written behind the " << count << " sent elements";
    return selected;
  }

  Selected Run(const std::vector<float>& gradient, std::uint64_t step, std::uint32_t id = 7) {
    Give(gradient);
    Launch(step, id, Predicate::kGiven);
    return Take(step, id);
  }

  // Whether no element of the slot from `count` on was written.
  bool UntouchedFrom(std::size_t count) {
    const auto indices = ToHost(stream(), indices_.data() + count, indices_.size() - count);
    return std::all_of(indices.begin(), indices.end(),
                       [](std::uint32_t i) { return i == 0xeeeeeeee; });
  }

  std::vector<float> Residual() {
    return ToHost(stream(), residual_.data() + residual_shift_, residual_.size() - residual_shift_);
  }
  // The input of the next selection: the gradient plus the residual.
  std::vector<float> WithResidual(std::vector<float> gradient) {
    const std::vector<float> residual = Residual();
    for (std::size_t i = 0; i < residual.size(); ++i) gradient[i] += residual[i];
    return gradient;
  }
  void SetResidual(const std::vector<float>& residual) {
    gpu::CopyAsync(stream(), residual_.data() + residual_shift_, residual.data(),
                   residual.size() * sizeof(float));
    gpu::Synchronize(stream());
  }

  // The number of elements that the sparsifier says it keeps.
  std::size_t Count() const { return sparsifier_.Count(n_, shape_, density_); }
  const Stream& stream() const { return stream_.view(); }
  const SelectCounters& counters() const { return counters_; }
  const SlotReport& report() const { return report_of_run_; }
  SlotReport ReadReport() { return ToHost(stream(), report_.data(), 1)[0]; }

 private:
  TensorInfo InfoOf(std::uint64_t step, std::uint32_t id) const {
    return {id, "conv1.weight", shape_, step};
  }

  static constexpr std::size_t kGuard = 64;
  std::unique_ptr<const Sparsifier> owned_;  // or null if another owns it
  const Sparsifier& sparsifier_;
  std::size_t n_;
  double density_;
  std::vector<std::int64_t> shape_;
  gpu::GpuStream stream_;
  DeviceWorkspace workspace_;
  ThreadPool pool_;
  Workspace host_workspace_;
  SelectCounters host_counters_;
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

// Runs one step on both, from equal residuals, and expects equal payloads and equal residuals.
inline void ExpectStepAsOnHost(Selection& host, DeviceSelection& device,
                               const std::vector<float>& gradient, std::uint64_t step) {
  SCOPED_TRACE("step " + std::to_string(step));
  const Selected expected = host.Run(gradient, step);
  ASSERT_TRUE(Same(device.Run(gradient, step), expected));
  if (host.residual().empty()) return;
  ASSERT_EQ(Bits(device.Residual()), Bits(host.residual()));
}

}  // namespace sparfuse::testing
