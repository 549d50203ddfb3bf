// Tests that PowerSGD on a device takes the host's steps, and notes what is not finite.
#include "baselines/powersgd/powersgd_device.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "core/base/error.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "tests/support/devices/device_arrays.hpp"

namespace sparfuse {
namespace {

// For the emulated device.
class LoopMultiplier final : public MatrixMultiplier {
 public:
  void Multiply(const Stream& stream, const MatrixProduct& product) override {
    gpu::emulated::Enqueue(stream, [=] {
      const MatrixProduct& p = product;
      for (std::size_t j = 0; j < p.n; ++j) {
        for (std::size_t i = 0; i < p.m; ++i) {
          double sum = 0;
          for (std::size_t l = 0; l < p.k; ++l) {
            const float a = p.transpose_a ? p.a[i * p.a_stride + l] : p.a[l * p.a_stride + i];
            const float b = p.transpose_b ? p.b[l * p.b_stride + j] : p.b[j * p.b_stride + l];
            sum += static_cast<double>(a) * static_cast<double>(b);
          }
          p.c[j * p.c_stride + i] = static_cast<float>(sum);
        }
      }
    });
  }
};

std::unique_ptr<MatrixMultiplier> MultiplierOn(Device device) {
  if (device.kind == DeviceKind::kEmulated) return std::make_unique<LoopMultiplier>();
  return MakeMatrixMultiplier(device);
}

class PowerSgdDevice : public OnDevices {
 protected:
  // What one step leaves on the host and on the device.
  struct Step {
    std::vector<float> p, q, applied, residual;
  };

  // Some steps of both side by side, without other ranks.
  void Compare(const std::vector<std::int64_t>& shape, int rank, bool feedback, std::size_t offset);

  Workspace host_workspace_;
  ThreadPool pool_{1};
};
INSTANTIATE_TEST_SUITE_P(Devices, PowerSgdDevice, TheDevices(), DeviceName);

std::vector<float> Random(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

void ExpectClose(const std::vector<float>& found, std::span<const float> expected,
                 const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0;
  for (const float v : expected) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 1e-5f * largest) << what << " " << i;
  }
}

void PowerSgdDevice::Compare(const std::vector<std::int64_t>& shape, int rank, bool feedback,
                             std::size_t offset) {
  const auto multiplier = MultiplierOn(stream().device);
  PowerSgd host(shape, rank, 5);
  PowerSgdOnDevice device(shape, rank, 5, stream().device, *multiplier);
  ASSERT_EQ(device.rows(), host.rows());
  ASSERT_EQ(device.cols(), host.cols());
  ASSERT_EQ(device.rank(), host.rank());
  const std::size_t n = host.rows() * host.cols();
  const QuantizeContext context{&pool_, &host_workspace_, 0};
  std::vector<float> residual(feedback ? n : 0);
  std::vector<float> applied(n);
  const DeviceArray<float> device_residual(stream(), residual.size(), offset);
  const DeviceArray<float> device_applied(stream(), n, offset);
  const DeviceArray<std::uint32_t> not_finite(stream(), 1);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = Random(n, step);
    const TensorInfo info{3, "fc.weight", {}, step};
    const SelectSource source{{gradient.data(), n, {}}, {residual.data(), residual.size(), {}}};
    host.ComputeP(context, source, info);
    host.Orthonormalize();
    host.ComputeQ(context, source);
    host.Reconstruct(context, source, applied);

    const DeviceArray<float> device_gradient(stream(), gradient, offset);
    const SelectSource on_device{device_gradient.read(), device_residual.view()};
    device.ComputeP(stream(), on_device, info, not_finite.data());
    device.Orthonormalize(stream());
    device.ComputeQ(stream(), on_device);
    device.Reconstruct(stream(), on_device, device_applied.view());
    const auto to_host = [&](DeviceSpan<float> span) {
      std::vector<float> copy(span.size);
      gpu::CopyAsync(stream(), copy.data(), span.data, span.size * sizeof(float));
      gpu::Synchronize(stream());
      return copy;
    };
    ExpectClose(to_host(device.p(stream())), host.p(), "P");
    ExpectClose(to_host(device.q(stream())), host.q(), "Q");
    ExpectClose(device_applied.ToHost(), applied, "applied");
    if (feedback) ExpectClose(device_residual.ToHost(), residual, "residual");
    EXPECT_EQ(not_finite.ToHost()[0], 0u);
  }
}

TEST_P(PowerSgdDevice, TakesTheHostsSteps) {
  Compare({7, 9}, 1, true, 0);
  Compare({32, 12, 3, 3}, 4, true, 0);
  Compare({33, 65}, 3, true, 1);
  Compare({700, 16}, 2, false, 0);
  Compare({5, 41}, 2, false, 3);
  Compare({20, 44}, 9, true, 0);
}

// With the host's factors the output has the host's bits.
TEST_P(PowerSgdDevice, ReconstructsTheHostsBits) {
  const std::vector<std::int64_t> shape = {21, 34};
  const auto multiplier = MultiplierOn(stream().device);
  PowerSgd host(shape, 3, 1);
  const PowerSgdOnDevice device(shape, 3, 1, stream().device, *multiplier);
  const std::vector<float> p = Random(3 * 21, 1);
  const std::vector<float> q = Random(3 * 34, 2);
  std::vector<float> residual = Random(21 * 34, 3);
  std::vector<float> applied(residual.size());
  std::copy(p.begin(), p.end(), host.p().begin());
  std::copy(q.begin(), q.end(), host.q().begin());
  gpu::CopyAsync(stream(), device.p(stream()).data, p.data(), p.size() * sizeof(float));
  gpu::CopyAsync(stream(), device.q(stream()).data, q.data(), q.size() * sizeof(float));
  const DeviceArray<float> kept(stream(), residual);
  const DeviceArray<float> out(stream(), residual.size(), 1);
  const DeviceArray<float> unused(stream(), residual.size());
  device.Reconstruct(stream(), {unused.read(), kept.view()}, out.view());
  host.Reconstruct({&pool_, &host_workspace_, 0},
                   {{residual.data(), residual.size(), {}}, {residual.data(), residual.size(), {}}},
                   applied);
  EXPECT_EQ(out.ToHost(), applied);
  EXPECT_EQ(kept.ToHost(), residual);
}

TEST_P(PowerSgdDevice, DependentColumnsBecomeZero) {
  const std::vector<std::int64_t> shape = {600, 20};
  const auto multiplier = MultiplierOn(stream().device);
  PowerSgdOnDevice device(shape, 3, 1, stream().device, *multiplier);
  std::vector<float> p = Random(3 * 600, 1);
  for (std::size_t i = 0; i < 600; ++i) p[600 + i] = 3 * p[i];
  gpu::CopyAsync(stream(), device.p(stream()).data, p.data(), p.size() * sizeof(float));
  device.Orthonormalize(stream());
  std::vector<float> found(p.size());
  gpu::CopyAsync(stream(), found.data(), device.p(stream()).data, p.size() * sizeof(float));
  gpu::Synchronize(stream());
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < 600; ++i) {
      sum += static_cast<double>(found[a * 600 + i]) * static_cast<double>(found[b * 600 + i]);
    }
    return sum;
  };
  EXPECT_NEAR(dot(0, 0), 1, 1e-6);
  EXPECT_EQ(dot(1, 1), 0);
  EXPECT_NEAR(dot(2, 2), 1, 1e-6);
  EXPECT_NEAR(dot(0, 2), 0, 1e-6);
}

TEST_P(PowerSgdDevice, NotesWhatIsNotFinite) {
  const std::vector<std::int64_t> shape = {20, 30};
  const auto multiplier = MultiplierOn(stream().device);
  const auto noted = [&](float value, bool feedback) {
    PowerSgdOnDevice device(shape, 2, 1, stream().device, *multiplier);
    std::vector<float> gradient = Random(600, 1);
    gradient[127] = value;
    gradient[128] = value;
    const DeviceArray<float> from(stream(), gradient);
    const DeviceArray<float> residual(stream(), feedback ? 600 : 0);
    const DeviceArray<std::uint32_t> not_finite(stream(), 1);
    device.ComputeP(stream(), {from.read(), residual.view()}, {0, "w", {}, 0}, not_finite.data());
    return not_finite.ToHost()[0];
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(noted(1, true), 0u);
  EXPECT_EQ(noted(nan, true), NotFiniteCode(120));  // of P, whose row begins there
  EXPECT_EQ(noted(nan, false), NotFiniteCode(120));
  EXPECT_EQ(noted(-std::numeric_limits<float>::infinity(), false), NotFiniteCode(120));

  PowerSgdOnDevice device(shape, 2, 1, stream().device, *multiplier);
  const DeviceArray<float> wrong(stream(), 599);
  EXPECT_THROW(device.ComputeP(stream(), {wrong.read(), {}}, {0, "w", {}, 0}, nullptr), Error);
}

TEST(MatrixMultiplier, NeedsADevice) {
  EXPECT_THROW(MakeMatrixMultiplier({DeviceKind::kHost, 0}), Error);
}

}  // namespace
}  // namespace sparfuse
