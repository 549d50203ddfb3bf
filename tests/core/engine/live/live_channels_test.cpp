// Tests exchanges on the channels of nodes and of chains, and the counts of native collectives.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/collective/algorithms.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/unit_strategy.hpp"
#include "tests/support/communicators/dropping_collective.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::size_t kElements = 1000;

// Sums the one tensor within the node.
class WithinNodes final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    const Handle packed = engine.Pack({.tensor = tensor});
    const Range range = engine.layout().tensor(tensor).range();
    engine.Apply({.exchange = engine.Exchange({.pattern = DenseSum{{range}},
                                               .channel = Channel::kIntraNode,
                                               .order = {.after = {packed}}})});
  }
};

LiveConfig OneTensor(Topology topology) {
  LiveConfig config;
  config.layout.Add("weight", {kElements}, kElements);
  config.plan = {{Unit{0, 1, Sparsified::kNever, 1.0}}};
  config.topology = topology;
  config.dense_collective = CoreCollective("ring-allreduce");
  config.deadline = kLiveDeadline;
  return config;
}

// Runs one step of a dense tensor on every rank and returns the records.
std::vector<StepRecord> OneStep(Topology topology,
                                const std::function<void(LiveConfig&)>& configure) {
  std::vector<StepRecord> records(static_cast<std::size_t>(topology.ranks));
  RunRanks(topology.ranks, topology.ranks_per_node, kLiveDeadline, [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    LiveConfig config = OneTensor(topology);
    configure(config);
    LiveEngine engine(std::move(config), loop, pool);
    const std::vector<float> gradient(kElements, 1.0f);
    engine.BeginStep(0, false);
    engine.AnnounceGradient(0, gradient);
    engine.EndBackward();
    engine.FinishStep();
    records[static_cast<std::size_t>(loop.rank())] = engine.EndStep();
  });
  return records;
}

// The same of a sparse tensor that a strategy `Sends` sends.
template <class Sends, class... Arguments>
std::vector<StepRecord> OneSparseStep(int ranks, std::shared_ptr<const Collective> collective,
                                      const Arguments&... arguments) {
  return OneStep({ranks, 1}, [&](LiveConfig& config) {
    config.plan = {{Unit{0, 1, Sparsified::kAhead, 0.05}}};
    config.strategy = std::make_unique<Sends>(arguments...);
    config.sparsifier = FindSparsifier("topk").make({}, 1);
    config.sparse_collective = collective;
  });
}

TEST(LiveChannels, ANativeCollectiveIsCountedOnTheRanksOfItsChannel) {
  CollectiveDescriptor native = CoreCollective("ring-allreduce")->descriptor();
  native.native = true;
  const std::shared_ptr<const Collective> counted = MakeCollective(native);
  const Topology topology{6, 3};
  const auto records = OneStep(topology, [&](LiveConfig& config) {
    config.strategy = std::make_unique<WithinNodes>();
    config.dense_collective = counted;
  });
  const RoundPlan plan = RingAllReduceRounds(kElements, {3, 3});
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    EXPECT_EQ(records[rank].sent_bytes, plan.per_rank[rank % 3].bytes_sent) << rank;
    EXPECT_EQ(records[rank].messages_sent, plan.per_rank[rank % 3].messages_sent) << rank;
  }
}

TEST(LiveChannels, ANativeCollectiveThatGivesOnePayloadOfSumsIsRefused) {
  CollectiveDescriptor native = DroppingDescriptor();
  native.native = true;
  const std::shared_ptr<const Collective> summing = MakeCollective(native);
  ExpectError(FailureKind::kInternal, {"1 payloads"},
              [&] { OneSparseStep<UnitStrategy>(2, summing); });
}

// The strategy sees nodes of two ranks, but the transport has no such nodes.
TEST(LiveChannels, AChannelThatTheTransportLacksIsNamed) {
  ExpectError(FailureKind::kUnsupported, {"intra-node"}, [&] {
    OneStep({2, 1}, [](LiveConfig& config) {
      config.topology = {2, 2};
      config.strategy = std::make_unique<WithinNodes>();
    });
  });
}

// Rank 0 sums the tensor, then all ranks sum it, on the same channel.
class SumsTwice final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    const Range range = engine.layout().tensor(tensor).range();
    const Handle pushed = engine.Exchange(
        {.pattern = ToOwners{{engine.Sparsify({.range = range, .density = 0.05})}}});
    const Handle again = engine.Sparsify(
        {.range = range, .density = 0.05, .residual = "again", .order = {.after = {pushed}}});
    engine.Apply({.exchange = engine.Exchange({.pattern = SparseSum{{again}}})});
  }
};

// Gathers, and counts the steps of a range in that range's state.
class Counting final : public Collective {
 public:
  struct Steps : CollectiveState {
    int steps = 0;
  };
  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape&, const Topology&) const override {
    return std::make_unique<Steps>();
  }
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    if (buffers.state == nullptr) SPARFUSE_THROW(kInternal, "counting: no memory of the range");
    ++static_cast<Steps*>(buffers.state)->steps;
    return gather_->Run(communicator, buffers, tag);
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return gather_->Rounds(sizes, topology);
  }

 private:
  std::shared_ptr<const Collective> gather_ = CoreCollective("sparse-allgather");
};

TEST(LiveChannels, EachCollectiveRemembersTheRangeByItself) {
  CollectiveDescriptor counting = CoreCollective("sparse-allgather")->descriptor();
  counting.make = [](const Options&) -> std::unique_ptr<Collective> {
    return std::make_unique<Counting>();
  };
  const auto records = OneSparseStep<SumsTwice>(3, MakeCollective(counting));
  EXPECT_EQ(records[0].exchanges, 2u);
}

// Requests one exchange.
class Asks final : public Strategy {
 public:
  explicit Asks(std::function<ExchangeRequest(Engine&)> what) : what_(std::move(what)) {}
  void GradientReady(Engine& engine, std::size_t) override { engine.Exchange(what_(engine)); }

 private:
  std::function<ExchangeRequest(Engine&)> what_;
};

// Errors that the types of requests cannot rule out.
TEST(LiveChannels, AnExchangeOfNothingOrOfNoMemberIsRefused) {
  const auto selected = [](Engine& engine) {
    return engine.Sparsify({.range = {0, kElements}, .density = 0.05});
  };
  const std::vector<std::pair<std::function<ExchangeRequest(Engine&)>, std::string>> cases = {
      {[](Engine&) { return ExchangeRequest{}; }, "at least one element"},
      {[](Engine&) {
         return ExchangeRequest{.pattern = DenseSum{{{7, 7}}}};
       },
       "at least one element"},
      {[](Engine&) { return ExchangeRequest{.pattern = ToOwners{}}; }, "at least one element"},
      {[&](Engine& engine) {
         return ExchangeRequest{.pattern = ToOwners{{selected(engine)}, 1}};
       },
       "an owner among the members"},
      {[&](Engine& engine) {
         const SharedRange shared{{0, kElements}, kElements, 0.05};
         return ExchangeRequest{.pattern = FromOwner{shared, -1, Selected{selected(engine)}}};
       },
       "an owner among the members"}};
  for (const auto& [what, expected] : cases) {
    ExpectError(FailureKind::kInternal, {expected},
                [&] { OneSparseStep<Asks>(1, CoreCollective("sparse-allgather"), what); });
  }
}

// A strategy that understates the size of a shared range or forwarded payload: no more elements are
// copied than fit.
TEST(LiveChannels, MoreElementsThanThereIsRoomForAreRefused) {
  const SharedRange little{{0, kElements}, 10, 0.001};  // room for its ten elements
  const auto selected = [](Engine& engine) {
    return engine.Sparsify({.range = {0, kElements}, .density = 0.05});
  };
  const std::vector<std::function<ExchangeRequest(Engine&)>> cases = {
      [&](Engine& engine) {
        return ExchangeRequest{.pattern = SharedSum{little, Selected{selected(engine)}}};
      },
      [&](Engine& engine) {
        const Handle brought = engine.Exchange({.pattern = SparseSum{{selected(engine)}}});
        return ExchangeRequest{.pattern = SharedSum{little, Forwarded{brought}},
                               .channel = Channel::kDataBack,
                               .order = {.after = {brought}}};
      }};
  for (const auto& what : cases) {
    ExpectError(FailureKind::kInternal, {"50 elements to send, but room for 10"},
                [&] { OneSparseStep<Asks>(1, CoreCollective("sparse-allgather"), what); });
  }
}

}  // namespace
}  // namespace sparfuse::testing
