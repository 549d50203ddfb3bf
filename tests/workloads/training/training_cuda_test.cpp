// Tests that training on a CUDA device equals the host's within a tolerance, from the same bits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/device/card.hpp"
#include "tests/support/devices/devices.hpp"
#include "tests/support/workload_state.hpp"

namespace sparfuse::workloads {
namespace {

using testing::Distance;
using testing::SameBits;
using testing::SmallConfig;
using testing::StateOf;
using testing::TrainOnce;

constexpr Stream kCuda{{DeviceKind::kCuda, 0}, nullptr};

class WorkloadOnCuda : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string why = sparfuse::testing::WhyNotOn(DeviceKind::kCuda);
    if (!why.empty()) GTEST_SKIP() << why;
  }
  std::unique_ptr<TrainingWorkload> Make(const WorkloadConfig& config) {
    return MakeWorkload(GetParam(), config);
  }
};

TEST_P(WorkloadOnCuda, StartsWithTheHostsBitsAndTrainsAsItDoes) {
  auto host = Make(SmallConfig()), cuda = Make(SmallConfig(kCuda));
  EXPECT_TRUE(SameBits(StateOf(*host), StateOf(*cuda)));
  for (std::uint64_t step = 0; step < 5; ++step) {
    const float loss = TrainOnce(*host, step, step);
    EXPECT_NEAR(TrainOnce(*cuda, step, step), loss, 2e-3 * loss) << "step " << step;
  }
  EXPECT_LT(Distance(StateOf(*host)[0], StateOf(*cuda)[0]), 1e-3);
  EXPECT_NEAR(cuda->Evaluate(64).loss, host->Evaluate(64).loss, 1e-2 * host->Evaluate(64).loss);
}

TEST_P(WorkloadOnCuda, EqualRunsGiveEqualBits) {
  if (GetParam() == "resnet-small") GTEST_SKIP() << "pools maxima of windows that overlap";
  auto a = Make(SmallConfig(kCuda)), b = Make(SmallConfig(kCuda));
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(TrainOnce(*a, step, step), TrainOnce(*b, step, step));
  }
  EXPECT_TRUE(SameBits(StateOf(*a), StateOf(*b)));
}

TEST_P(WorkloadOnCuda, HooksGetTheGradientsOfTheHostInTheirOrder) {
  std::vector<std::size_t> order[2];
  const Stream streams[] = {{}, kCuda};
  for (const int i : {0, 1}) {
    auto workload = Make(SmallConfig(streams[i]));
    workload->SetGradientHook([&order, i](std::size_t parameter, const float*, std::size_t) {
      order[i].push_back(parameter);
    });
    workload->ClearGradients();
    workload->Prepare(0, 0);
    workload->BeginForward(0, 0);
    workload->Backward(true);
  }
  EXPECT_EQ(order[0], order[1]);
}

TEST_P(WorkloadOnCuda, RoundedProductsAreNearExactOnes) {
  if (CardOf(0).major < 8) GTEST_SKIP() << CardOf(0).name << " has neither TF32 nor bfloat16";
  const float exact = Make(SmallConfig(kCuda))->Forward(0, 0);
  for (const Precision precision : {Precision::kTf32, Precision::kBf16}) {
    const float rounded = Make(SmallConfig(kCuda, precision))->Forward(0, 0);
    EXPECT_NEAR(rounded, exact, 0.02 * exact);
    if (precision == Precision::kBf16) {
      EXPECT_NE(rounded, exact);
    }
  }
}

TEST_P(WorkloadOnCuda, AnErrorInAHookLeavesBackward) {
  testing::ExpectAnErrorInAHookLeavesBackward(*Make(SmallConfig(kCuda)));
}

INSTANTIATE_TEST_SUITE_P(Workloads, WorkloadOnCuda, ::testing::ValuesIn(testing::WorkloadNames()),
                         testing::TestName);

}  // namespace
}  // namespace sparfuse::workloads
