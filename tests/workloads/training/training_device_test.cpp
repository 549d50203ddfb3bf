// Tests devices and precisions: the requested one is used, and nothing else changes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/support/errors.hpp"
#include "tests/support/workload_state.hpp"

namespace sparfuse::workloads {
namespace {

using testing::SameBits;
using testing::SmallConfig;
using testing::State;
using testing::StateOf;
using testing::TrainOnce;

class WorkloadDevice : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<TrainingWorkload> Make(const WorkloadConfig& config) {
    return MakeWorkload(GetParam(), config);
  }
};

TEST_P(WorkloadDevice, Bf16OnTheHostIsNearFp32AndLearns) {
  auto exact = Make(SmallConfig());
  auto rounded = Make(SmallConfig({}, Precision::kBf16));
  EXPECT_TRUE(SameBits(StateOf(*exact), StateOf(*rounded)));
  const float first = rounded->Forward(0, 0);
  rounded->Backward(true);
  EXPECT_NE(first, exact->Forward(0, 0)) << "nothing was rounded";
  exact->Backward(true);
  EXPECT_NEAR(first, exact->Forward(0, 0), 0.02 * first);
  exact->Backward(true);
  float last = first;
  for (std::uint64_t update = 0; update < 30; ++update) last = TrainOnce(*rounded, 0, update);
  EXPECT_LT(last, 0.97f * first);
}

TEST_P(WorkloadDevice, Bf16LeavesFp32AsItIs) {
  auto before = Make(SmallConfig());
  TrainOnce(*before, 0, 0);
  TrainOnce(*Make(SmallConfig({}, Precision::kBf16)), 0, 0);
  auto after = Make(SmallConfig());
  TrainOnce(*after, 0, 0);
  EXPECT_TRUE(SameBits(StateOf(*before), StateOf(*after)));
}

TEST_P(WorkloadDevice, WhatIsPreparedAheadIsWhatForwardWouldMake) {
  WorkloadConfig config = SmallConfig();
  config.accumulation = 2;
  auto at_once = Make(config), ahead = Make(config);
  for (std::uint64_t step = 0; step < 3; ++step) {
    ahead->Prepare(step, 0);
    ahead->Prepare(step, 1);
    at_once->ClearGradients();
    ahead->ClearGradients();
    float mean = 0;
    for (const int micro : {0, 1}) {
      const float loss = at_once->Forward(step, micro);
      mean += loss / 2;
      at_once->Backward(micro == 1);
      EXPECT_EQ(ahead->Forward(step, micro), loss) << "step " << step;
      ahead->Backward(micro == 1);
    }
    EXPECT_NEAR(ahead->MeanLoss(), mean, 1e-6 * mean);
  }
}

TEST_P(WorkloadDevice, StateIsCopiedBothWays) {
  auto from = Make(SmallConfig()), to = Make(SmallConfig());
  TrainOnce(*from, 0, 0);
  const State state = StateOf(*from);
  EXPECT_FALSE(SameBits(state, StateOf(*to)));
  for (std::size_t part = 0; part < state.size(); ++part) to->SetState(part, state[part]);
  EXPECT_TRUE(SameBits(state, StateOf(*to)));
  EXPECT_EQ(from->Forward(1, 0), to->Forward(1, 0));
}

INSTANTIATE_TEST_SUITE_P(Workloads, WorkloadDevice, ::testing::ValuesIn(testing::WorkloadNames()),
                         testing::TestName);

std::string ErrorOf(const WorkloadConfig& config, FailureKind kind,
                    const std::string& workload = "digits-resnet") {
  return sparfuse::testing::ErrorOf([&] { MakeWorkload(workload, config); }, kind);
}

TEST(WorkloadPlacement, RefusesWhatAMachineCannotDo) {
  EXPECT_SAYS(ErrorOf(SmallConfig({}, Precision::kTf32), FailureKind::kConfig), "on the host");
  sparfuse::testing::ExpectError(FailureKind::kUnsupported, {}, [] {
    MakeWorkload("digits-resnet", SmallConfig({{DeviceKind::kEmulated, 0}, nullptr}));
  });
  const Stream none{{DeviceKind::kCuda, CudaDeviceCount()}, nullptr};
  EXPECT_SAYS(ErrorOf(SmallConfig(none), FailureKind::kUnsupported),
              "this machine has no CUDA device");
}

// While it lives, this process's memory may grow by this much.
class RoomFor {
 public:
  explicit RoomFor(std::size_t bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limited = before_;
    limited.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes;
    setrlimit(RLIMIT_AS, &limited);
  }
  ~RoomFor() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(WorkloadErrors, AWantOfMemoryIsToldAsOneAndWithoutAStack) {
  const RoomFor little(256 << 20);
  const std::string error =
      ErrorOf(SmallConfig(), FailureKind::kOutOfMemory, "gpt2-large-wikitext103");
  EXPECT_SAYS(error, "making gpt2-large-wikitext103: ");
  EXPECT_EQ(error.find("frame #"), std::string::npos) << error;
}

}  // namespace
}  // namespace sparfuse::workloads
