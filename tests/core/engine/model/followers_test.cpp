// Tests that a model that simulates some of its ranks records the same for all ranks as a model
// that simulates all.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/strategies.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

// Both chains nested: the sums of a node are sharded, and each shard is cut into parts. The ranks
// with the same local rank on the first nodes own these parts.
class NodeOwners final : public UnitStrategy {
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string) override {
    const Topology& where = engine.topology();
    const int node = where.NodeOf(engine.rank());
    Handle last = engine.Exchange({.pattern = SumShards{range},
                                   .channel = Channel::kIntraNode,
                                   .order = {.after = std::move(packed)}});
    const Range shard = ShardOf(range, where.LocalRankOf(engine.rank()), where.ranks_per_node);
    const int parts = static_cast<int>(std::min<std::size_t>(unit.partitions, shard.size()));
    if (parts > 0) {
      ToOwners push;
      for (int j = 0; j < parts; ++j) {
        push.selections.push_back(engine.Sparsify({.range = ShardOf(shard, j, parts),
                                                   .density = unit.density,
                                                   .order = {.after = {last}}}));
      }
      const Handle pushed =
          engine.Exchange({.pattern = std::move(push), .channel = Channel::kInterNode});
      SharedSum pull{{shard, ShardOf(shard, 0, parts).size(), unit.density}};
      if (node < parts) {
        const Handle merged = engine.Merge({.exchange = pushed});
        pull.given = Selected{engine.Sparsify({.range = ShardOf(shard, node, parts),
                                               .density = unit.density,
                                               .residual = "server",
                                               .order = {.after = {merged}}})};
      }
      last = engine.Merge(
          {.exchange = engine.Exchange(
               {.pattern = pull, .channel = Channel::kInterNode, .order = {.after = {pushed}}})});
    }
    return engine.Exchange({.pattern = GatherShards{range},
                            .channel = Channel::kIntraNodeBack,
                            .order = {.after = {last}}});
  }
};

struct Case {
  std::unique_ptr<Strategy> (*make)();
  Topology topology;
  std::uint16_t partitions;
  double spread;  // of selected counts
  int simulated;  // ranks at most, over all attempts
};

template <class Chain>
std::unique_ptr<Strategy> Make() {
  return std::make_unique<Chain>();
}

// Called by googletest.
void PrintTo(const Case& of_case, std::ostream* out) {
  *out << of_case.topology.ranks << " ranks, " << of_case.topology.ranks_per_node << " a node, "
       << of_case.partitions << " partitions, spread " << of_case.spread;
}

void AddCosts(ModelConfig& model) {
  model.cost.seconds_per_entry = 1e-8;
  model.cost.clear_seconds = PiecewiseLinear({{0, 1e-6}, {1e6, 1e-3}});
  model.cost.selection["topk"].Add(0.05, PiecewiseLinear({{0, 1e-5}, {1e6, 2e-3}}));
  model.cost.overlap = 0.7;
  model.cost.compute_slowdown = 1.2;
}

class Followers : public ::testing::TestWithParam<Case> {
 protected:
  // The sizes are not divisible by the number of ranks, and one is smaller than it. Some units have
  // several tensors.
  ModelConfig Config() {
    const std::uint16_t k = GetParam().partitions;
    ModelConfig model =
        EvenModelOf(LayoutOf({1001, 5, 40003, 777, 2, 9999, 300000}),
                    {{Unit{0, 2, Sparsified::kBehind, 0.05, Lane::kCompute, k}, Unit{2, 3},
                      Unit{3, 5, Sparsified::kBehind, 0.05, Lane::kCompute, 1},
                      Unit{5, 7, Sparsified::kBehind, 0.05, Lane::kSide, k}}},
                    GetParam().topology);
    model.make_strategy = [this] {
      ++made_;
      return GetParam().make();
    };
    model.selection = {0.0, GetParam().spread};
    AddCosts(model);
    return model;
  }
  int made_ = 0;
};

TEST_P(Followers, DoAsWhenTheyAreSimulated) {
  const int ranks = GetParam().topology.ranks;
  const ModelConfig config = Config();
  const ModelStep some = SimulateStep(config, 2, 1);
  EXPECT_LE(made_, GetParam().simulated);
  made_ = 0;
  const ModelStep all = SimulateStep(config, 2, ranks);
  EXPECT_EQ(made_, ranks);
  ASSERT_EQ(some.records.size(), all.records.size());
  for (std::size_t rank = 0; rank < all.records.size(); ++rank) {
    EXPECT_EQ(some.records[rank], all.records[rank]) << rank;
  }
}

// If all ranks own parts of equal size, they behave alike: simulating the first rank or the first
// node suffices.
TEST(FollowersOfEvenOwners, DoAsWhenTheyAreSimulated) {
  const Case cases[] = {{Make<OwnedParts>, {12, 1}, 12, 0, 1},
                        {Make<OwnedParts>, {12, 4}, 12, 0, 1},
                        {Make<NodeOwners>, {12, 3}, 4, 0, 1 + 3}};
  for (const Case& each : cases) {
    SCOPED_TRACE(::testing::PrintToString(each));
    const std::uint16_t k = each.partitions;
    ModelConfig model =
        EvenModelOf(LayoutOf({1200, 24, 48000, 777}),
                    {{Unit{0, 2, Sparsified::kBehind, 0.05, Lane::kCompute, k},
                      Unit{2, 3, Sparsified::kBehind, 0.05, Lane::kSide, k}, Unit{3, 4}}},
                    each.topology);
    AddCosts(model);
    int made = 0;
    model.make_strategy = [&] {
      ++made;
      return each.make();
    };
    const ModelStep some = SimulateStep(model, 2, 1);
    EXPECT_EQ(made, each.simulated);
    const ModelStep all = SimulateStep(model, 2, each.topology.ranks);
    EXPECT_EQ(some.records, all.records);
  }
}

// Attempts: one rank, then a node, or the owners and a node, or all ranks if the others cannot
// follow.
INSTANTIATE_TEST_SUITE_P(All, Followers,
                         ::testing::Values(Case{Make<UnitStrategy>, {12, 1}, 1, 0, 1},
                                           Case{Make<UnitStrategy>, {12, 4}, 1, 0.3, 1},
                                           Case{Make<NodeShards>, {12, 3}, 1, 0, 1 + 3},
                                           Case{Make<NodeShards>, {16, 4}, 1, 0.3, 1 + 4},
                                           Case{Make<NodeShards>, {7, 3}, 1, 0, 1 + 7},
                                           Case{Make<OwnedParts>, {12, 1}, 3, 0, 1 + 4},
                                           Case{Make<OwnedParts>, {13, 1}, 5, 0.3, 1 + 6},
                                           Case{Make<OwnedParts>, {12, 4}, 5, 0.3, 1 + 9},
                                           Case{Make<OwnedParts>, {12, 1}, 12, 0.3, 1 + 12},
                                           Case{Make<NodeOwners>, {12, 3}, 2, 0.3, 1 + 3 + 9},
                                           Case{Make<NodeOwners>, {12, 3}, 4, 0.3, 1 + 3 + 12}));

}  // namespace
}  // namespace sparfuse::testing
