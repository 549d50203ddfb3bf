// Tests exchanges on the channels of nodes, and what is counted of native collectives.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/unit_strategy.hpp"
#include "tests/support/dropping_collective.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kElements = 1000;

// Sums the one tensor within the node.
class WithinNodes final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    const Handle packed = engine.Pack({.tensor = tensor});
    ExchangeRequest request;
    request.ranges = {engine.layout().tensor(tensor).range()};
    request.channel = Channel::kIntraNode;
    request.order.after = {packed};
    engine.Apply({.exchange = engine.Exchange(std::move(request))});
  }
};

LiveConfig OneTensor(Topology topology, std::unique_ptr<Strategy> strategy) {
  LiveConfig config;
  config.layout.Add("weight", {kElements}, kElements);
  config.plan = {{Unit{0, 1, Sparsified::kNever, 1.0}}};
  config.topology = topology;
  config.strategy = std::move(strategy);
  config.dense_collective = CoreCollective("ring-allreduce");
  config.deadline = testing::kLiveDeadline;
  return config;
}

// One step on every rank; its records.
std::vector<StepRecord> OneStep(const std::function<LiveConfig()>& configure, int ranks,
                                int ranks_per_node) {
  std::vector<StepRecord> records(static_cast<std::size_t>(ranks));
  testing::RunRanks(ranks, ranks_per_node, testing::kLiveDeadline, [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    LiveEngine engine(configure(), loop, pool);
    const std::vector<float> gradient(kElements, 1.0f);
    engine.BeginStep(0, false);
    engine.AnnounceGradient(0, gradient);
    engine.EndBackward();
    engine.FinishStep();
    records[static_cast<std::size_t>(loop.rank())] = engine.EndStep();
  });
  return records;
}

std::unique_ptr<Error> ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::make_unique<Error>(error);
  }
  return nullptr;
}

TEST(LiveChannels, ANativeCollectiveIsCountedOnTheRanksOfItsChannel) {
  CollectiveDescriptor native = CoreCollective("ring-allreduce")->descriptor();
  native.native = true;
  const std::shared_ptr<const Collective> counted = MakeCollective(native);
  const Topology topology{6, 3};
  const auto records = OneStep(
      [&] {
        LiveConfig config = OneTensor(topology, std::make_unique<WithinNodes>());
        config.dense_collective = counted;
        return config;
      },
      topology.ranks, topology.ranks_per_node);
  const RoundPlan plan = RingAllReduceRounds(kElements, {3, 3});
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    EXPECT_EQ(records[rank].sent_bytes, plan.per_rank[rank % 3].bytes_sent) << rank;
    EXPECT_EQ(records[rank].messages_sent, plan.per_rank[rank % 3].messages_sent) << rank;
  }
}

TEST(LiveChannels, ANativeCollectiveThatGivesOnePayloadOfSumsIsRefused) {
  CollectiveDescriptor native = testing::DroppingDescriptor();
  native.native = true;
  const std::shared_ptr<const Collective> summing = MakeCollective(native);
  const auto error = ErrorOf([&] {
    OneStep(
        [&] {
          LiveConfig config = OneTensor({2, 1}, std::make_unique<UnitStrategy>());
          config.plan = {{Unit{0, 1, Sparsified::kAhead, 0.05}}};
          config.sparsifier = FindSparsifier("topk").make({}, 1);
          config.sparse_collective = summing;
          return config;
        },
        2, 1);
  });
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->kind(), FailureKind::kInternal) << error->what();
  EXPECT_NE(std::string(error->what()).find("1 payloads"), std::string::npos) << error->what();
}

// The strategy sees nodes of two ranks; the transport has none.
TEST(LiveChannels, AChannelThatTheTransportLacksIsNamed) {
  const auto error = ErrorOf([&] {
    OneStep([] { return OneTensor({2, 2}, std::make_unique<WithinNodes>()); }, 2, 1);
  });
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->kind(), FailureKind::kUnsupported) << error->what();
  EXPECT_NE(std::string(error->what()).find("intra-node"), std::string::npos) << error->what();
}

}  // namespace
}  // namespace sparfuse
