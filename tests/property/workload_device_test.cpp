// Devices and precisions: that what is asked for is computed, that nothing but this changes, and on
// a CUDA device that training is the host's to a tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/tensor/card.hpp"
#include "workloads/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse {
namespace {

constexpr Stream kCuda{{DeviceKind::kCuda, 0}, nullptr};

WorkloadConfig SmallConfig(const Stream& stream = {}, Precision precision = Precision::kFp32) {
  WorkloadConfig config;
  config.batch_per_worker = 4;
  config.seed = 3;
  config.stream = stream;
  config.precision = precision;
  return config;
}

// One update by this workload's own gradient on the batch of `step`; the loss before it.
float TrainOnce(TrainingWorkload& workload, std::uint64_t step, std::uint64_t update) {
  workload.SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t) {
    workload.SetGradient(parameter, gradient);
  });
  workload.ClearGradients();
  const float loss = workload.Forward(step, 0);
  workload.Backward(true);
  workload.Update(update);
  return loss;
}

using State = std::vector<std::vector<float>>;

State StateOf(TrainingWorkload& workload) {
  State state;
  for (const DeviceSpan<float>& part : workload.DeviceState()) {
    std::vector<float> host(part.size);
    workload.CopyState(state.size(), host);
    state.push_back(std::move(host));
  }
  return state;
}

bool SameBits(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (std::memcmp(a[i].data(), b[i].data(), 4 * a[i].size()) != 0) return false;
  }
  return true;
}

// Of what belongs together, relative to the length of `a`.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    length += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(difference / length);
}

class WorkloadDevice : public testing::TestWithParam<std::string> {
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

class WorkloadOnCuda : public WorkloadDevice {
 protected:
  void SetUp() override {
    const std::string why = WhyNoCuda();
    if (!why.empty()) GTEST_SKIP() << "no CUDA device: " << why;
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
  auto workload = Make(SmallConfig(kCuda));
  workload->SetGradientHook(
      [](std::size_t, const float*, std::size_t) { SPARFUSE_THROW(kComm, "lost a peer"); });
  workload->ClearGradients();
  workload->Forward(0, 0);
  try {
    workload->Backward(true);
    FAIL() << "the error was swallowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kComm);
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (!workload.synthetic()) names.push_back(workload.name);
  }
  return names;
}

std::string Name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Workloads, WorkloadDevice, testing::ValuesIn(Names()), Name);
INSTANTIATE_TEST_SUITE_P(Workloads, WorkloadOnCuda, testing::ValuesIn(Names()), Name);

std::string ErrorOf(const WorkloadConfig& config, FailureKind kind) {
  try {
    MakeWorkload("digits-resnet", config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(WorkloadPlacement, RefusesWhatAMachineCannotDo) {
  EXPECT_NE(ErrorOf(SmallConfig({}, Precision::kTf32), FailureKind::kConfig).find("on the host"),
            std::string::npos);
  ErrorOf(SmallConfig({{DeviceKind::kEmulated, 0}, nullptr}), FailureKind::kUnsupported);
  const Stream none{{DeviceKind::kCuda, CudaDeviceCount()}, nullptr};
  EXPECT_NE(
      ErrorOf(SmallConfig(none), FailureKind::kUnsupported).find("this machine has no CUDA device"),
      std::string::npos);
}

TEST(WorkloadPlacement, PrecisionsHaveNames) {
  EXPECT_EQ(PrecisionOf("fp32"), Precision::kFp32);
  EXPECT_EQ(PrecisionOf("tf32"), Precision::kTf32);
  EXPECT_EQ(PrecisionOf("bf16"), Precision::kBf16);
  try {
    PrecisionOf("bf61");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"bf16\""), std::string::npos);
  }
}

}  // namespace
}  // namespace sparfuse
