// Tests one step of every family at paper size, for the models that take seconds at most. The
// others are in paper_models_slow_test.cpp.
#include "tests/support/errors.hpp"
#include "tests/support/model_step.hpp"
#include "tests/support/workload_state.hpp"

namespace sparfuse::workloads {
namespace {

class ReadyOrder : public ::testing::TestWithParam<std::string> {};

TEST_P(ReadyOrder, IsTheLayerTables) { testing::ExpectAStepAsTheTableSays(GetParam(), 2, 1); }

INSTANTIATE_TEST_SUITE_P(PaperSize, ReadyOrder,
                         ::testing::Values("resnet20-cifar10", "resnet50-cifar100",
                                           "vgg16-cifar100", "lstm200-wikitext2",
                                           "transformer-wikitext2"),
                         testing::TestName);

// Uses dropout in the LSTM: the dropped elements must follow the seed and the rank, too.
TEST(SyntheticBatches, FollowSeedAndRankAlone) {
  for (const char* name : {"resnet20-cifar10", "lstm200-wikitext2"}) {
    const auto loss = [name](std::uint64_t seed, int rank, std::uint64_t step) {
      WorkloadConfig config;
      config.batch_per_worker = 2;
      config.seed = seed;
      config.rank = rank;
      config.world = 2;
      return MakeWorkload(name, config)->Forward(step, 0);
    };
    const float first = loss(3, 0, 0);
    EXPECT_EQ(loss(3, 0, 0), first) << name;
    EXPECT_NE(loss(3, 1, 0), first) << name;
    EXPECT_NE(loss(3, 0, 1), first) << name;
    EXPECT_NE(loss(4, 0, 0), first) << name;
  }
}

TEST(SyntheticBatches, CannotBeEvaluated) {
  WorkloadConfig config;
  config.batch_per_worker = 2;
  sparfuse::testing::ExpectError(FailureKind::kConfig, {},
                                 [&] { MakeWorkload("resnet20-cifar10", config)->Evaluate(64); });
}

}  // namespace
}  // namespace sparfuse::workloads
