// Tests that a reused threshold selects the host's elements on a device, and calls the inner
// sparsifier in the same steps.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/sparsify/reused_threshold/reused_threshold.hpp"
#include "tests/support/devices/device_selection.hpp"

namespace sparfuse::testing {
namespace {

class ReusedThresholdOnDevice : public OnDevices {};
SPARFUSE_ON_DEVICES(ReusedThresholdOnDevice);

// An inner sparsifier without kernels.
class Staged final : public Sparsifier {
 public:
  explicit Staged(std::unique_ptr<Sparsifier> inner) : inner_(std::move(inner)) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    return inner_->MakeState(n);
  }
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    inner_->Select(context, source, density, info, state, slot);
  }

 private:
  std::unique_ptr<Sparsifier> inner_;
};

std::unique_ptr<Sparsifier> Reused(const std::string& inner, int period, bool staged = false) {
  auto sparsifier = MakeSparsifier(inner);
  if (staged) sparsifier = std::make_unique<Staged>(std::move(sparsifier));
  return ReuseThreshold(std::move(sparsifier), period);
}

// The factor of each step: too few reach the threshold after 0.3, too many after 4, none after 0.
constexpr float kFactors[] = {1, 1.02f, 0.3f, 0.31f, 4, 4, 0, 1, 1.1f, 0.9f};

// Steps from equal residuals, each with its own id.
void ExpectAsOnHost(Device device, const Sparsifier& sparsifier, const std::string& data,
                    std::size_t n, double density, bool feedback, std::size_t capacity = 0) {
  SCOPED_TRACE(std::string(sparsifier.name()) + " " + data + " n=" + std::to_string(n));
  Selection host(sparsifier, n, density, 1, feedback);
  DeviceSelection selection(sparsifier, device, n, density, feedback, capacity);
  for (std::size_t step = 0; step < std::size(kFactors); ++step) {
    const auto gradient = Scaled(MakeData(data, n, step), kFactors[step]);
    if (feedback && step == 6) std::fill(host.residual().begin(), host.residual().end(), 0.0f);
    if (feedback) selection.SetResidual(host.residual());
    ExpectStepAsOnHost(host, selection, gradient, step);
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(selection.counters().selections, step + 1);
    ASSERT_EQ(selection.counters().overflows, host.counters().overflows);
  }
  EXPECT_GT(host.counters().fallbacks, 2u);  // the guard was active
}

TEST_P(ReusedThresholdOnDevice, SelectsAsOnTheHost) {
  for (const bool staged : {false, true}) {
    const auto topk = Reused("topk", 4, staged);
    EXPECT_NE(topk->SelectsOnDevice(), staged);
    ExpectAsOnHost(device(), *topk, "gaussian", 3001, 0.02, false);
    ExpectAsOnHost(device(), *topk, "gaussian", staged ? 3001 : 20'011, 0.005, true);
    ExpectAsOnHost(device(), *topk, "few-values", 3001, 0.02, true);
  }
  const auto threshold = Reused("mstopk", 3);
  ExpectAsOnHost(device(), *threshold, "laplace", 3001, 0.02, true);
}

// The guard knows the estimate's count, but not the slot's capacity.
TEST_P(ReusedThresholdOnDevice, AnOverflowLetsTheInnerOneSelect) {
  const auto topk = Reused("topk", 10);
  constexpr std::size_t kN = 3001;
  const std::size_t k = KeptCount(kN, 0.1);
  DeviceSelection selection(*topk, device(), kN, 0.1, true, k + 10);
  const auto gradient = MakeData("gaussian", kN, 1);
  EXPECT_EQ(selection.Run(gradient, 0).indices.size(), k);
  // With the residual of the first step, about twice as many elements reach the threshold.
  EXPECT_EQ(selection.Run(gradient, 1).indices.size(), k);
  EXPECT_EQ(selection.counters().overflows, 1u);
  EXPECT_EQ(selection.counters().fallbacks, 0u);
}

TEST_P(ReusedThresholdOnDevice, NothingChangesWhereTheSelectionIsNotWanted) {
  const auto topk = Reused("topk", 4);
  constexpr std::size_t kN = 3001;
  DeviceSelection selection(*topk, device(), kN, 0.02, true);
  DeviceSelection other(*topk, device(), kN, 0.02, true);
  const auto gradient = MakeData("gaussian", kN, 1);
  selection.Run(gradient, 0);
  other.Run(gradient, 0);
  const auto residual = selection.Residual();
  const auto huge = MakeData("ascending", kN, 1);
  selection.SetOnlyIf(0);
  EXPECT_TRUE(selection.Run(huge, 1).indices.empty());
  EXPECT_EQ(Bits(selection.Residual()), Bits(residual));
  selection.SetOnlyIf(1);
  const auto next = MakeData("laplace", kN, 2);
  EXPECT_EQ(selection.Run(next, 2).indices, other.Run(next, 2).indices);
  EXPECT_EQ(selection.counters().fallbacks, other.counters().fallbacks);
}

TEST_P(ReusedThresholdOnDevice, WhatIsNotFiniteIsReported) {
  const auto topk = Reused("topk", 4);
  DeviceSelection selection(*topk, device(), 5000, 0.02, true);
  auto gradient = MakeData("gaussian", 5000, 1);
  selection.Run(gradient, 0);
  gradient[4321] = kNan;
  EXPECT_THROW(selection.Run(gradient, 1), Error);
  EXPECT_EQ(NotFiniteCode(selection.report().not_finite), 4321u);
}

}  // namespace
}  // namespace sparfuse::testing
