// Tests how the scheduler turns requests into operations: parts, payload bytes, order, and the
// collective of each pattern.
#include "core/engine/scheduler.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/collective/collective.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse {
namespace {

// Records the operations that it starts; a test ends them.
class Recorder final : public StepScheduler {
 public:
  explicit Recorder(Topology topology = {4, 2}, int rank = 1)
      : StepScheduler(testing::LayoutOf({10, 20, 30}), {{Unit{0, 3}}}, topology, rank) {
    ResetStep();
  }

  using StepScheduler::AwaitEnd;
  using StepScheduler::Finish;
  using StepScheduler::op;
  using StepScheduler::PartOf;
  using StepScheduler::ResetStep;

  std::uint64_t step() const noexcept override { return number; }
  void BeginWait(std::string) override {}
  void EndWait(const std::string&) override {}

  std::uint64_t number = 0;
  std::vector<Handle> started;
  bool complete = false;

 private:
  void StartLocal(Handle handle, Op&) override { started.push_back(handle); }
  void StartExchange(Handle handle, Op&) override { started.push_back(handle); }
  void StartTimerOp(Handle handle, double) override { started.push_back(handle); }
  void StepComplete() override { complete = true; }
};

TEST(Scheduler, NeighboursAreOnePart) {
  Recorder step;
  const Handle sum = step.Exchange({.pattern = DenseSum{{{0, 10}, {10, 10}, {10, 30}, {40, 60}}}});
  EXPECT_EQ(step.op(sum).parts, (std::vector<Range>{{0, 30}, {40, 60}}));
  EXPECT_EQ(step.op(sum).range(), (Range{0, 60}));
  EXPECT_EQ(step.op(sum).elements(), 50u);
  EXPECT_EQ(step.op(step.Apply({.exchange = sum})).parts, step.op(sum).parts);
}

// Two ranks a node: a shard for each, of floats, which together are the range.
TEST(Scheduler, RefusesShardsThatAreNotAllOfTheirRange) {
  const Range range{0, 60};
  const auto ask = [&](std::vector<Range> shards, std::optional<Halves> halves = {}) {
    Recorder step;
    return step.Exchange(
        {.pattern = SumShards{range, halves, std::move(shards)}, .channel = Channel::kIntraNode});
  };
  EXPECT_NO_THROW(ask({}));
  EXPECT_NO_THROW(ask({{0, 10}, {10, 60}}));
  EXPECT_NO_THROW(ask({{0, 60}, {60, 60}}));
  for (const auto& shards : std::vector<std::vector<Range>>{{{0, 60}},
                                                            {{0, 10}, {20, 60}},
                                                            {{0, 10}, {10, 50}},
                                                            {{10, 20}, {20, 60}},
                                                            {{0, 10}, {10, 20}, {20, 60}}}) {
    testing::ExpectError(FailureKind::kInternal, {"a shard of floats for each member"},
                         [&] { ask(shards); });
  }
  testing::ExpectError(FailureKind::kInternal, {"a shard of floats for each member"}, [&] {
    ask({{0, 10}, {10, 60}}, Halves{});
  });
}

TEST(Scheduler, AnExchangeIsOfItsSelectionsOrOfWhatIsShared) {
  Recorder step;
  const Handle a = step.Sparsify({.range = {0, 10}});
  const Handle b = step.Sparsify({.range = {30, 60}});
  const Handle sum = step.Exchange({.pattern = SparseSum{{a, b}}});
  EXPECT_EQ(step.op(sum).parts, (std::vector<Range>{{0, 10}, {30, 60}}));
  const Handle shared = step.Exchange({.pattern = SharedSum{{{0, 60}, 30}, Selected{b}}});
  EXPECT_EQ(step.op(shared).parts, (std::vector<Range>{{0, 60}}));
}

TEST(Scheduler, HalvesAreHalfTheBytes) {
  Recorder step;
  const Handle whole = step.Exchange({.pattern = DenseSum{{{0, 60}}}});
  const Handle halves =
      step.Exchange({.pattern = HalvesSum{{0, 60}}, .channel = Channel::kDataBack});
  EXPECT_EQ(step.op(whole).payload_bytes, 240u);
  EXPECT_EQ(step.op(halves).payload_bytes, 120u);
}

TEST(Scheduler, WhatAnExchangeGivesComesBeforeIt) {
  Recorder step;
  const Handle selected = step.Sparsify({.range = {0, 60}});
  const Handle brought = step.Exchange({.pattern = SparseSum{{selected}}});
  const Handle sent_on = step.Exchange(
      {.pattern = FromOwner{{{0, 60}, 60}, 0, Forwarded{brought}}, .channel = Channel::kDataBack});
  EXPECT_EQ(step.started, (std::vector{selected}));
  step.op(selected).payload_bytes = 16;
  step.Finish(selected);
  EXPECT_EQ(step.op(brought).payload_bytes, 16u);
  EXPECT_EQ(step.started, (std::vector{selected, brought}));
  step.Finish(brought);
  EXPECT_EQ(step.started, (std::vector{selected, brought, sent_on}));
  EXPECT_EQ(step.op(sent_on).exchanges, (std::vector{brought}));
}

TEST(Scheduler, HandlesAreOfTheStep) {
  Recorder step;
  const Handle packed = step.Pack({.tensor = 0});
  const auto expect = [](const std::string& text, const auto& ask) {
    testing::ExpectError(FailureKind::kConfig, {text}, ask);
  };
  expect("after has handle 7, which is no operation of this step", [&] {
    step.Pack({.tensor = 1, .order = {{7}, {}}});
  });
  expect("apply has handle 1, which is no exchange", [&] { step.Apply({.exchange = packed}); });
  expect("merge has handle 7, which is no operation", [&] { step.Merge({.exchange = 7}); });
  expect("apply has handle 2147483648", [&] { step.Apply({.exchange = kFirstInBackground}); });
  expect("an exchange has handle 1 among its selections",
         [&] { step.Exchange({.pattern = SparseSum{{packed}}}); });
  expect("payload_bytes has handle 1", [&] { (void)step.PayloadBytes(packed); });
  EXPECT_EQ(step.started, (std::vector{packed}));
}

TEST(Scheduler, AStepWithNothingUnderWayThatIsNotAppliedFails) {
  Recorder step;
  const Handle sum = step.Exchange({.pattern = DenseSum{{{0, 30}}}});
  step.AwaitEnd();  // the exchange is under way
  const Handle applied = step.Apply({.exchange = sum});
  step.Finish(sum);
  testing::ExpectError(FailureKind::kConfig, {"30 of 60 elements are applied"},
                       [&] { step.Finish(applied); });
}

TEST(Scheduler, AStepEndsWithItsLastElement) {
  Recorder step;
  std::vector<std::int64_t> agreed;
  const Handle vote = step.Negotiate(
      {.values = {3}, .then = [&](auto values) { agreed.assign(values.begin(), values.end()); }});
  const Handle sum = step.Exchange({.pattern = DenseSum{{{0, 60}}}});
  const Handle apply = step.Apply({.exchange = sum});
  for (const Handle each : {vote, sum}) step.Finish(each);
  EXPECT_EQ(agreed, (std::vector<std::int64_t>{3}));
  EXPECT_FALSE(step.complete);
  step.Finish(apply);
  EXPECT_TRUE(step.complete);
}

// A step goes on while dense exchanges wait for their turn in the background; they keep the step of
// their request. One with selections holds the step until it has begun.
TEST(Scheduler, DenseExchangesWaitForTheirTurnInTheBackground) {
  const auto exchange = [](auto pattern) {
    return ExchangeRequest{
        .pattern = std::move(pattern), .channel = Channel::kBackground, .background = true};
  };
  Recorder step;
  EXPECT_FALSE(step.HasUnderWay());
  step.Apply({.own = Range{0, 60}});
  EXPECT_TRUE(step.complete);
  step.ResetStep();
  step.complete = false;
  const Handle first = step.Exchange(exchange(DenseSum{{{0, 30}}}));
  const Handle second = step.Exchange(exchange(DenseSum{{{30, 60}}}));
  EXPECT_EQ(step.started, (std::vector{first}));
  step.Apply({.own = Range{0, 60}});
  EXPECT_TRUE(step.complete);
  EXPECT_TRUE(step.HasUnderWay());
  step.ResetStep();
  step.number = 1;
  step.complete = false;
  step.Finish(first);  // in the next step
  EXPECT_EQ(step.started, (std::vector{first, second}));
  EXPECT_EQ(step.op(second).step, 0u);
  const Handle selected = step.Sparsify({.range = {0, 10}});
  const Handle third = step.Exchange(exchange(SparseSum{{selected}}));
  step.Finish(selected);
  step.Apply({.own = Range{0, 60}});
  EXPECT_FALSE(step.complete);
  step.Finish(second);
  EXPECT_EQ(step.started.back(), third);
  EXPECT_TRUE(step.complete);
  const Handle applied = step.Apply({.exchange = first, .to = ApplyTo::kAnchor});
  step.Finish(applied);
  EXPECT_TRUE(step.HasUnderWay());
}

// This is rank 1, local rank 1 of a node of two.
TEST(Scheduler, PartsGoRoundFromTheirFirstOwner) {
  const Recorder step;
  EXPECT_EQ(step.PartOf({.pattern = ToOwners{{}, 0}}), 1u);
  EXPECT_EQ(step.PartOf({.pattern = ToOwners{{}, 3}}), 2u);
  EXPECT_EQ(step.PartOf({.pattern = ToOwners{{}, 1}, .channel = Channel::kIntraNode}), 0u);
  EXPECT_EQ(step.PartOf({.pattern = ToOwners{{}, 1}, .channel = Channel::kInterNode}), 1u);
}

// A copy of this rank's own selection is not a copy.
TEST(Scheduler, OnlyAnotherRanksSelectionIsACopy) {
  Recorder step;
  EXPECT_FALSE(step.op(step.Sparsify({.range = {0, 60}, .copy_of = 1}))
                   .If<SparsifyRequest>()
                   ->copy_of.has_value());
  EXPECT_EQ(step.op(step.Sparsify({.range = {0, 60}, .copy_of = 0})).If<SparsifyRequest>()->copy_of,
            0);
}

TEST(Exchange, EachPatternHasItsCollective) {
  const auto dense = CoreCollective("ring-allreduce");
  const auto gather = CoreCollective("sparse-allgather");
  const std::shared_ptr<const Collective> sparse = MakeCollective(gather->descriptor());
  const Range range{0, 60};
  const SharedRange shared{range, 30};
  const SharedRange forwarded{range, 30, 1.0, 2};
  const std::vector<std::pair<Pattern, const Collective*>> cases = {
      {DenseSum{{range}}, dense.get()},
      {HalvesSum{range}, &F16AllReduce()},
      {SumShards{range}, &RingReduceScatter()},
      {SumShards{range, Halves{}}, &F16ReduceScatter()},
      {GatherShards{range}, &RingAllGather()},
      {GatherShards{range, Halves{}}, &F16AllGather()},
      {SparseSum{{1}}, sparse.get()},
      {ToOwners{{1}}, &SparseReduceScatter()},
      {SharedSum{shared, Selected{1}}, sparse.get()},
      {FromOwner{shared, 2, Selected{1}}, &SparseBroadcast()}};
  for (const auto& [pattern, collective] : cases) {
    const ExchangeRequest exchange{.pattern = pattern};
    EXPECT_EQ(&CollectiveOf(exchange, dense, sparse), collective) << pattern.index();
    EXPECT_EQ(exchange.sparse(), pattern.index() >= 4) << pattern.index();
    EXPECT_EQ(exchange.selections().size(), exchange.sparse() ? 1u : 0u) << pattern.index();
  }
  // Forwarded payloads must arrive unchanged: a collective that sums would change them.
  EXPECT_EQ(&CollectiveOf({.pattern = SharedSum{forwarded}}, dense, sparse), gather.get());
}

TEST(Exchange, OnlyHalvesHaveAResidual) {
  const Range range{0, 60};
  EXPECT_EQ(ExchangeRequest{.pattern = DenseSum{{range}}}.halves(), nullptr);
  EXPECT_EQ(ExchangeRequest{.pattern = SumShards{range}}.halves(), nullptr);
  EXPECT_EQ((ExchangeRequest{.pattern = HalvesSum{range}}.halves()->residual), "local");
  EXPECT_EQ((ExchangeRequest{.pattern = GatherShards{range, Halves{"server"}}}.halves()->residual),
            "server");
}

}  // namespace
}  // namespace sparfuse
