// Tests the messages about CUDA cards that cannot be used.
#include "core/device/card.hpp"

#include <gtest/gtest.h>

#include "core/device/device.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

constexpr int kNoDevice = 100;           // cudaErrorNoDevice
constexpr int kSystemNotReady = 802;     // cudaErrorSystemNotReady
constexpr int kInsufficientDriver = 35;  // cudaErrorInsufficientDriver

std::string Why(int driver, int status, int devices, const char* visible = nullptr) {
  return WhyNoCuda({driver, 13000}, status, "as CUDA says", devices, visible);
}

TEST(Card, NothingIsWrongWithADeviceThatIsThere) { EXPECT_EQ(Why(13000, 0, 1), ""); }

TEST(Card, TheReasonForNoneHasBothVersions) {
  EXPECT_EQ(Why(0, kInsufficientDriver, 0),
            "there is no CUDA driver; the runtime of this build, 13.0, needs one");
  EXPECT_EQ(Why(12080, kInsufficientDriver, 0),
            "the CUDA driver serves runtimes up to 12.8, this build uses 13.0: install a newer "
            "driver");
  EXPECT_EQ(Why(13010, kNoDevice, 0, ""), "CUDA_VISIBLE_DEVICES= leaves none (as CUDA says)");
  EXPECT_EQ(Why(13010, kNoDevice, 0), "the driver reports none (as CUDA says)");
  // Other failures are not blamed on the variable, which schedulers always set.
  EXPECT_EQ(Why(13010, kSystemNotReady, 0, "0,1"),
            "the driver reports none (as CUDA says); the driver is not ready: between cards of an "
            "NVSwitch it waits for nvidia-fabricmanager");
}

TEST(Card, OfAnIndexThatIsNotThereIsUnsupported) {
  testing::ExpectError(FailureKind::kUnsupported, {"this machine has no CUDA device"},
                       [&] { CardOf(CudaDeviceCount()); });
}

}  // namespace
}  // namespace sparfuse
