// Tests the mass check over ranks on a collective that drops and returns elements, and on one that
// forgets to return them.
#include "core/engine/live/mass_check.hpp"

#include <gtest/gtest.h>

#include "tests/support/communicators/dropping_collective.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::testing {
namespace {

class Forgetting final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    co_await Dropping()->Run(communicator, buffers, tag);
    buffers.returned.clear();
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return Dropping()->Rounds(sizes, topology);
  }
};

std::shared_ptr<const Collective> MakeForgetting() {
  static const CollectiveDescriptor kDescriptor = [] {
    CollectiveDescriptor descriptor = DroppingDescriptor();
    descriptor.make = [](const Options&) -> std::unique_ptr<Collective> {
      return std::make_unique<Forgetting>();
    };
    return descriptor;
  }();
  return MakeCollective(kDescriptor);
}

// Fractions, whose sums round.
std::vector<float> Gradient(int rank, int step, std::size_t tensor) {
  auto gradient = IntegerGradient(rank, step, tensor);
  for (float& value : gradient) value /= 7;
  return gradient;
}

// The number of violations in each step.
std::vector<std::uint64_t> ViolationsWith(std::shared_ptr<const Collective> collective) {
  std::vector<std::uint64_t> violations(kLiveSteps);
  RunRanks(3, 1, kLiveDeadline, [&](ProgressLoop& loop) {
    LiveConfig config =
        SparseLive({{Unit{0, kTensorSizes.size(), Sparsified::kBehind, 0.05}}}, {3, 1});
    config.sparse_collective = collective;
    ThreadPool pool(1);
    LiveEngine engine(std::move(config), loop, pool);
    MassCheck check(loop);
    for (int step = 0; step < kLiveSteps; ++step) {
      check.Begin(engine);
      engine.BeginStep(static_cast<std::uint64_t>(step), false);
      std::vector<std::vector<float>> gradients;
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
        gradients.push_back(Gradient(loop.rank(), step, t));
      }
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
        check.Announce(engine, t, gradients[t]);
        engine.AnnounceGradient(t, gradients[t]);
      }
      engine.EndBackward();
      engine.FinishStep();
      const std::uint64_t found = check.Violations(engine);
      if (loop.rank() == 0) violations[static_cast<std::size_t>(step)] = found;
      engine.BeginUpdate();
      engine.EndStep();
    }
  });
  return violations;
}

TEST(MassCheck, FindsNothingWhereWhatIsDroppedComesBack) {
  EXPECT_EQ(ViolationsWith(Dropping()), std::vector<std::uint64_t>(kLiveSteps));
}

TEST(MassCheck, FindsWhatACollectiveForgets) {
  for (const std::uint64_t found : ViolationsWith(MakeForgetting())) EXPECT_GT(found, 100u);
}

}  // namespace
}  // namespace sparfuse::testing
