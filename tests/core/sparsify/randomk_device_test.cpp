// Tests that random-k on a device draws the host's positions, bit for bit.
#include <gtest/gtest.h>

#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"
#include "tests/support/devices/device_selection.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

class RandomKOnDevice : public OnDevices {};

TEST_P(RandomKOnDevice, SelectsWhatTheHostSelects) {
  const auto randomk = MakeSparsifier("randomk");
  for (const std::size_t n : {1, 2, 33, 8192, 17'011}) {
    for (const double density : {0.01, 0.3, 0.51, 1.0}) {
      for (const std::size_t skew : {0, 1}) {
        if (skew == 1 && density != 0.3) continue;
        for (const bool feedback : {false, true}) {
          SCOPED_TRACE(std::to_string(n) + " " + std::to_string(density));
          Selection host(*randomk, n, density, 1, feedback);
          DeviceSelection selection(*randomk, device(), n, density, feedback, 0, skew, 0);
          for (std::uint64_t step = 0; step < 2; ++step) {
            const auto x = MakeData("gaussian", n, step);
            ExpectStepAsOnHost(host, selection, x, step);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// More draws than one block makes: rounds of many blocks come first.
TEST_P(RandomKOnDevice, DrawsInRoundsWhatTheHostDrawsOneByOne) {
  constexpr std::size_t kN = 60'000;
  const auto randomk = MakeSparsifier("randomk");
  Selection host(*randomk, kN, 0.49, 1, false);
  DeviceSelection selection(*randomk, device(), kN, 0.49, false);
  const auto x = MakeData("gaussian", kN, 1);
  EXPECT_EQ(selection.Run(x, 3).indices, host.Run(x, 3).indices);
}

TEST_P(RandomKOnDevice, NamesTheFirstElementThatIsNotFinite) {
  constexpr std::size_t kN = 20'000;
  const auto randomk = MakeSparsifier("randomk");
  for (const bool feedback : {false, true}) {
    DeviceSelection selection(*randomk, device(), kN, 0.01, feedback);
    auto x = MakeData("gaussian", kN, 1);
    x[9001] = x[15'000] = x[9002] = kInfinity;
    ExpectError(FailureKind::kNumeric, {"element 9001 ", "step 41"}, [&] { selection.Run(x, 41); });
  }
}

// A bitmap set by hand: the sent elements, the residual, and x as it was left.
TEST_P(RandomKOnDevice, TakesTheBitsThatAreSetOfAnXThatIsDone) {
  constexpr std::size_t kN = 8192 + 40;
  const gpu::GpuStream stream(device());
  DeviceWorkspace workspace(device());
  const DeviceContext context{stream.view(), &workspace, nullptr, nullptr};
  const DeviceBitmap bitmap = ClearDeviceBitmap(context, kN);
  std::vector<std::uint32_t> words(2 * gpu::kBitmapWords, 0);
  words[0] = 0x80000001u;
  words[256] = 0x4u;
  words[257] = 0x80u;
  gpu::CopyAsync(stream.view(), bitmap.bits, words.data(), words.size() * 4);
  const auto x = MakeData("ascending", kN, 1);
  const Buffer<float> residual = ToDevice(stream.view(), x);
  const Buffer<std::uint32_t> indices(kN, device());
  const Buffer<float> values(kN, device());
  const Buffer<SlotReport> report(1, device());
  DeviceSlot slot{indices.data(), values.data(), kN, report.data()};
  const SelectSource source{{residual.data(), kN, stream.view()},
                            {residual.data(), kN, stream.view()}};
  TakeBitmapOnDevice(context, source, bitmap, SetBits::kSent, Sum::kDone, slot);
  EXPECT_EQ(ToHost(stream.view(), report.data(), 1)[0].count, 4u);
  const auto taken = ToHost(stream.view(), values.data(), kN);
  EXPECT_EQ(std::vector<float>(taken.begin(), taken.begin() + 5),
            (std::vector<float>{0, 31, 8194, 8231, 0}));
  auto left = x;
  for (const std::size_t i : {0, 31, 8194, 8231}) left[i] = 0;
  EXPECT_EQ(ToHost(stream.view(), residual.data(), kN), left);
}

SPARFUSE_ON_DEVICES(RandomKOnDevice);

}  // namespace
}  // namespace sparfuse::testing
