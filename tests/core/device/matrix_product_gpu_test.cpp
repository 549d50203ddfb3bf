// Tests that matrix products on a card equal those of plain loops, and that they need a card.
#include "core/base/error.hpp"
#include "core/device/matrix_product.hpp"
#include "tests/support/devices/device_arrays.hpp"

namespace sparfuse {
namespace {

class Products : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, Products, ::testing::Values(DeviceKind::kCuda), DeviceName);

// Small whole numbers, whose products are exact.
TEST_P(Products, AreThoseOfLoops) {
  constexpr std::size_t kM = 5, kN = 3, kK = 4;
  const auto multiplier = MakeMatrixMultiplier(stream().device);
  std::vector<float> a(kM * kK), b(kK * kN), expected(kM * kN);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (std::size_t i = 0; i < kM; ++i) {
        for (std::size_t j = 0; j < kN; ++j) {
          float& sum = expected[j * kM + i] = 0;
          for (std::size_t l = 0; l < kK; ++l) {
            sum +=
                a[transpose_a ? i * kK + l : l * kM + i] * b[transpose_b ? l * kN + j : j * kK + l];
          }
        }
      }
      const DeviceArray<float> on_a(stream(), a), on_b(stream(), b), c(stream(), kM * kN);
      multiplier->Multiply(stream(), {.transpose_a = transpose_a,
                                      .transpose_b = transpose_b,
                                      .m = kM,
                                      .n = kN,
                                      .k = kK,
                                      .a = on_a.data(),
                                      .a_stride = transpose_a ? kK : kM,
                                      .b = on_b.data(),
                                      .b_stride = transpose_b ? kN : kK,
                                      .c = c.data(),
                                      .c_stride = kM});
      EXPECT_EQ(c.ToHost(), expected) << transpose_a << transpose_b;
    }
  }
}

TEST(MatrixMultiplier, NeedsADevice) {
  EXPECT_THROW(MakeMatrixMultiplier({DeviceKind::kHost, 0}), Error);
}

}  // namespace
}  // namespace sparfuse
