// Compares the discrete-event engine with times computed by hand and published golden vectors.
#include "core/engine/model/model_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "baselines/registry.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/engine/model/model_cluster.hpp"
#include "core/fusion/plan_times.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/timed_tensors.hpp"

namespace sparfuse::testing {
namespace {

TEST(SharedResource, SharesItsCapacityEvenly) {
  Simulation simulation;
  SharedResource cores(simulation, 2);
  std::vector<std::pair<int, double>> ends;
  const auto use = [&](int who, double work) {
    cores.Use(work, [&, who] { ends.emplace_back(who, simulation.now()); });
  };
  // Three users want 1, 1 and 2 seconds of two cores. Each runs at 2/3 until 1.5 s; then one is
  // left alone with 1 second to go.
  use(0, 1);
  use(1, 1);
  use(2, 2);
  simulation.Run();
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_NEAR(ends[0].second, 1.5, 1e-12);
  EXPECT_NEAR(ends[1].second, 1.5, 1e-12);
  EXPECT_EQ(ends[2].first, 2);
  EXPECT_NEAR(ends[2].second, 2.5, 1e-12);
}

TEST(SharedResource, SlowsDownWhatHasBegun) {
  Simulation simulation;
  SharedResource link(simulation, 1);
  double first = 0;
  double second = 0;
  link.Use(1, [&] { first = simulation.now(); });
  simulation.After(0.5, [&] { link.Use(1, [&] { second = simulation.now(); }); });
  simulation.Run();
  EXPECT_NEAR(first, 1.5, 1e-12);  // alone for 0.5 s, shared for 1 s
  EXPECT_NEAR(second, 2.0, 1e-12);
}

// 4 s of work at half a share: 1 s is done until Release at 2 s, and 3 s are left. The user without
// a share waits for Release and then takes half of the link.
TEST(SharedResource, GivesWhatHasAShareNoMoreUntilItIsReleased) {
  Simulation simulation;
  SharedResource link(simulation, 1);
  double half = 0, none = 0, late = 0;
  link.Use(
      4, [&] { half = simulation.now(); }, 0.5);
  link.Use(
      1, [&] { none = simulation.now(); }, 0);
  simulation.After(2, [&] { link.Release(); });
  simulation.After(8, [&] {
    link.Use(
        1, [&] { late = simulation.now(); }, 0);
  });
  simulation.Run();
  EXPECT_NEAR(none, 4, 1e-12);
  EXPECT_NEAR(half, 6, 1e-12);
  EXPECT_NEAR(late, 9, 1e-12);  // was released before
}

TEST(SharedResource, WithoutLimitDelaysNobody) {
  Simulation simulation;
  SharedResource cores(simulation, 0);
  int ended = 0;
  for (int i = 0; i < 5; ++i) {
    cores.Use(1, [&] {
      ++ended;
      EXPECT_NEAR(simulation.now(), 1.0, 1e-12);
    });
  }
  simulation.Run();
  EXPECT_EQ(ended, 5);
}

StepRecord FirstRecord(const ModelConfig& config) {
  return SimulateStep(config, 0, 0).records.front();
}
double StepSeconds(const ModelConfig& config) { return FirstRecord(config).step_seconds; }

void SetStrategy(ModelConfig& config, const char* name) {
  config.make_strategy = [name] { return FindStrategy(name).make({}); };
}

// Two ranks, and a tensor of 1,000 elements and 1 s of backward for each of the units' tensors. A
// tenth is selected in `select` seconds. Everything else takes no time.
ModelConfig Tenths(const char* strategy, std::vector<Unit> units, double select,
                   const LinkCost& links = LinkCost::FromAlphaBeta(0, 0)) {
  const std::size_t tensors = units.back().last;
  ModelConfig config =
      ModelOf(LayoutOf(std::vector<std::size_t>(tensors, 1000)), {std::move(units)}, {2, 1});
  SetStrategy(config, strategy);
  config.cost.selection["topk"].Add(0.1, PiecewiseLinear({{0, select}}));
  config.cost.links.fill(links);
  config.backward.backward_seconds.assign(tensors, 1);
  return config;
}

// P = 8, alpha = 5e-5 s, beta = 8e-10 s/B, selection 3e-5 + 1e-10 n, decompression 1e-5 + 2e-11 per
// entry, copies and additions free. The references send values and indices as two messages, so that
// a sparse round has two start-ups.
double GoldenSeconds(const char* strategy, const char* planner, const Options& planner_options,
                     double density) {
  const TimedTensors synthetic = Synthetic();
  const GradientLayout layout = synthetic.Layout();
  const auto& strategy_part = FindStrategy(strategy);
  const PlanInput input{layout, {8, 1}, density, strategy_part.sparsified, nullptr, nullptr};
  ModelConfig config = ModelOf(layout, PlanOf(planner, input, planner_options), input.topology);
  config.make_strategy = [&] {
    return strategy_part.make(ResolveOptions(strategy, strategy_part.options, {}));
  };
  config.cost.selection["topk"].Add(density, PiecewiseLinear({{0, 3e-5}, {1e9, 3e-5 + 0.1}}));
  config.cost.clear_seconds = PiecewiseLinear({{0, 1e-5}});
  config.cost.seconds_per_entry = 2e-11;
  config.cost.links.fill(LinkCost::FromAlphaBeta(density < 1 ? 2 * 5e-5 : 5e-5, 8e-10));
  config.backward.backward_seconds = synthetic.backward_seconds;
  config.backward.forward_seconds = 0.5 * std::accumulate(synthetic.backward_seconds.begin(),
                                                          synthetic.backward_seconds.end(), 0.0);
  const ModelStep step = SimulateStep(config, 0, 0);
  for (const StepRecord& record : step.records) {
    EXPECT_EQ(record.step_seconds, step.records.front().step_seconds);
  }
  return step.records.front().step_seconds;
}

// The step times come from an independent simulation of the same recursions. The end of a unit's
// communication is max(end of the unit before, ready) + its time. Decompression follows in issue
// order after backward.
TEST(ModelEngine, ReproducesTheGoldenTimeline) {
  EXPECT_NEAR(GoldenSeconds("dense-units", "layer-wise", {}, 1.0), 0.400922, 1e-4);
  EXPECT_NEAR(GoldenSeconds("ahead", "layer-wise", {}, 0.01), 0.179408, 1e-4);
  EXPECT_NEAR(GoldenSeconds("behind", "by-count", {{"tensors_per_unit", std::int64_t{10}}}, 0.01),
              0.066013, 1e-4);
  EXPECT_NEAR(GoldenSeconds("behind", "whole-model", {}, 0.01), 0.083930, 1e-4);
  EXPECT_NEAR(GoldenSeconds("ahead", "layer-wise", {}, 0.1), 0.352837, 1e-4);
  EXPECT_NEAR(GoldenSeconds("behind", "whole-model", {}, 0.1), 0.257977, 1e-4);
}

// A library's all-reduce takes 1 ms and 1 ns a byte; halves have half the bytes.
TEST(ModelEngine, HalvesWithoutAResidualTakeTheLibrarysAllReduce) {
  const GradientLayout layout = Synthetic().Layout();
  const PlanInput input{layout, {8, 1}, 1.0, Sparsified::kNever, nullptr, nullptr};
  const auto step = [&](const char* strategy) {
    ModelConfig config = ModelOf(layout, PlanOf("whole-model", input, {}), input.topology);
    SetStrategy(config, strategy);
    config.cost.all_reduce.start_seconds = PiecewiseLinear({{0, 1e-3}});
    config.cost.all_reduce.link_seconds.back() = PiecewiseLinear({{0, 0}, {1e9, 1}});
    config.backward.backward_seconds = Synthetic().backward_seconds;
    return FirstRecord(config);
  };
  const StepRecord dense = step("dense-units"), halves = step("half-units");
  const auto numel = static_cast<double>(layout.numel());
  EXPECT_EQ(dense.payload_bytes, 4 * layout.numel());
  EXPECT_EQ(halves.payload_bytes, 2 * layout.numel());
  EXPECT_NEAR(dense.step_seconds - halves.step_seconds, 2e-9 * numel, 1e-9);
}

// Cupcake's two units, each selected beside backward: S = max(S, ready) + h.
TEST(ModelEngine, ReproducesTheGoldenTimelineOfTheSideLane) {
  const Options halves = {{"boundary", std::string("count")}};
  EXPECT_NEAR(GoldenSeconds("behind", "cupcake", halves, 0.01), 0.072051, 5.1e-7);
  EXPECT_NEAR(GoldenSeconds("behind", "cupcake", halves, 0.1), 0.236441, 5.1e-7);
  Options within = halves;
  within["lane"] = std::string("compute");
  EXPECT_GT(GoldenSeconds("behind", "cupcake", within, 0.01), 0.0725);
}

// A selection takes 3 s alone and half as long again beside backward.
TEST(ModelEngine, TheSideLaneWorksBesideBackwardAndSlower) {
  for (const Lane lane : {Lane::kCompute, Lane::kSide}) {
    ModelConfig config =
        Tenths("behind",
               {{0, 1, Sparsified::kBehind, 0.1, lane}, {1, 2, Sparsified::kBehind, 0.1, lane}}, 3);
    config.cost.side_slowdown = 1.5;
    const ModelStep step = SimulateStep(config, 0, 1);
    const StepRecord& record = step.records.front();
    // On the compute lane: backward 1, selection 3, and again. On the side lane: selections from 1
    // to 5.5 and from there to 10.
    EXPECT_NEAR(record.step_seconds, lane == Lane::kCompute ? 8 : 10, 1e-9);
    EXPECT_NEAR(record.sparsify_seconds, lane == Lane::kCompute ? 6 : 0, 1e-9);
    EXPECT_NEAR(record.exposed_communication_seconds, lane == Lane::kCompute ? 0 : 8, 1e-9);
    std::vector<std::pair<double, double>> selections;
    for (const Span& span : step.spans.front()) {
      if (span.kind != SpanKind::kSparsify) continue;
      EXPECT_EQ(span.lane, LaneName(lane));
      selections.emplace_back(span.begin_seconds, span.end_seconds);
    }
    ASSERT_EQ(selections.size(), 2u);
    EXPECT_NEAR(selections[1].first, 5 + (lane == Lane::kSide ? 0.5 : 0), 1e-9);
    // If the side lane has curves of its own, these are slowed down.
    config.cost.side_selection["topk"].Add(0.1, PiecewiseLinear({{0, 1}}));
    EXPECT_NEAR(StepSeconds(config), lane == Lane::kCompute ? 8 : 4, 1e-9);
  }
}

ModelConfig OneTensor(int ranks) {
  ModelConfig config =
      ModelOf(LayoutOf({1000}), {{Unit{0, 1, Sparsified::kNever, 1.0}}}, {ranks, 1});
  config.sparsifier = "";
  SetStrategy(config, "dense-units");
  config.cost.links.fill(LinkCost::FromAlphaBeta(1e-3, 1e-6));
  config.backward = {0.001, 0.010, {0.020}, 0, 0.005};
  return config;
}

TEST(ModelEngine, AddsUpOneTensorByHand) {
  const ModelStep step = SimulateStep(OneTensor(2), 0, 1);
  const StepRecord& record = step.records.front();
  // Two rounds of 2,000 bytes: 2 * (1 ms + 2 ms).
  EXPECT_NEAR(record.exposed_communication_seconds, 0.006, 1e-9);
  EXPECT_NEAR(record.step_seconds, 0.001 + 0.010 + 0.020 + 0.006 + 0.005, 1e-9);
  EXPECT_EQ(record.sent_bytes, 4000u);
  EXPECT_EQ(record.payload_bytes, 4000u);
  double last = 0;
  for (const Span& span : step.spans.front()) {
    EXPECT_LE(span.begin_seconds, span.end_seconds);
    last = std::max(last, span.end_seconds);
  }
  EXPECT_NEAR(last, record.step_seconds, 1e-9);
}

// Batch, forward and backward of three micro-steps; one exchange behind the last.
TEST(ModelEngine, ComputesEveryMicroStep) {
  ModelConfig config = OneTensor(2);
  config.micro_steps = 3;
  const ModelStep step = SimulateStep(config, 0, 1);
  const StepRecord& record = step.records.front();
  EXPECT_NEAR(record.forward_seconds, 3 * 0.010, 1e-9);
  EXPECT_NEAR(record.backward_seconds, 3 * 0.020, 1e-9);
  EXPECT_NEAR(record.exposed_communication_seconds, 0.006, 1e-9);
  EXPECT_NEAR(record.step_seconds, 3 * (0.001 + 0.010 + 0.020) + 0.006 + 0.005, 1e-9);
  EXPECT_EQ(record.sent_bytes, 4000u);
}

// On the host lane, encoding a whole tensor takes the host's time, if that is known.
TEST(ModelEngine, EncodesOnTheHostAsTheHostDoes) {
  const auto step = [](bool offloaded, bool known) {
    ModelConfig model = EvenModelOf(
        LayoutOf({1000}),
        {.units = {Unit{0, 1, Sparsified::kAhead, 1}}, .tensors = {{1, offloaded}}}, {2, 1});
    SetStrategy(model, "ahead");
    model.backward = {0, 0, {0}, 0, 0};
    model.dense_quantizer = FindQuantizer("sign").make({}, 1);
    model.cost.encode_seconds["sign"] = PiecewiseLinear({{0, 2}});
    if (known) model.cost.host_selection["sign"].Add(1, PiecewiseLinear({{0, 30}}));
    model.cost.decode["sign"] = {};
    return StepSeconds(model);
  };
  EXPECT_NEAR(step(false, true), 2, 0.1);
  EXPECT_NEAR(step(true, true), 30, 0.1);
  EXPECT_NEAR(step(true, false), 2, 0.1);
}

// Both gradients are ready at 31 ms, and an exchange takes 6 ms.
ModelConfig TwoTensorsAtOnce() {
  ModelConfig config = OneTensor(2);
  config.layout.Add("bias", {1000}, 1000);
  config.plan.units = {{0, 1, Sparsified::kNever, 1.0}, {1, 2, Sparsified::kNever, 1.0}};
  config.backward.backward_seconds = {0.020, 0};
  return config;
}

// The host prepares the second exchange during the first.
TEST(ModelEngine, PreparesAnExchangeOnTheHostBesideTheNetwork) {
  ModelConfig config = TwoTensorsAtOnce();
  const auto step_seconds = [&](double host, double per_rank) {
    config.cost.exchange_host_seconds = host;
    config.cost.exchange_host_seconds_per_rank = per_rank;
    return StepSeconds(config);
  };
  EXPECT_NEAR(step_seconds(0, 0), 0.031 + 2 * 0.006 + 0.005, 1e-9);
  EXPECT_NEAR(step_seconds(0.004, 0), 0.031 + 0.004 + 2 * 0.006 + 0.005, 1e-9);
  EXPECT_NEAR(step_seconds(0.002, 0.001), 0.031 + 0.004 + 2 * 0.006 + 0.005, 1e-9);
  EXPECT_NEAR(step_seconds(0.010, 0), 0.031 + 2 * 0.010 + 0.006 + 0.005, 1e-9);
}

// The same in line: the host's work for the second exchange begins when the first has ended.
TEST(ModelEngine, PreparesAnExchangeOnTheHostInLineWithTheNetwork) {
  ModelConfig config = TwoTensorsAtOnce();
  config.cost.host_in_line = true;
  const auto step_seconds = [&](double host, double per_element) {
    config.cost.exchange_host_seconds = host;
    config.cost.exchange_seconds_per_element = per_element;
    return StepSeconds(config);
  };
  EXPECT_NEAR(step_seconds(0, 0), 0.031 + 2 * 0.006 + 0.005, 1e-9);
  EXPECT_NEAR(step_seconds(0.004, 0), 0.031 + 2 * (0.004 + 0.006) + 0.005, 1e-9);
  EXPECT_NEAR(step_seconds(0.004, 1e-6), 0.031 + 2 * (0.004 + 0.001 + 0.006) + 0.005, 1e-9);
  // All host times grow alike with the ranks, network times do not: (2 / 0.5)^0.5 = 2.
  config.cost.host_growth = 0.5;
  config.cost.host_growth_from = 0.5;
  EXPECT_NEAR(step_seconds(0.004, 1e-6), 0.031 + 2 * (0.008 + 0.002 + 0.006) + 0.005, 1e-9);
  config.cost.host_growth_from = 2;
  EXPECT_NEAR(step_seconds(0.004, 0), 0.031 + 2 * (0.004 + 0.006) + 0.005, 1e-9);
}

// Forward waits for the broadcast: 1 ms of start-up, 4 ms on links, and the host's part.
TEST(ModelEngine, WaitsForTheBroadcastOfBuffersBeforeForward) {
  ModelConfig config = OneTensor(2);
  const ModelStep without = SimulateStep(config, 0, 1);
  config.cost.buffers = {4e6, 0.001, 0.004};
  const ModelStep with = SimulateStep(config, 0, 1);
  const auto grown = [&](double StepRecord::*member) {
    return with.records.back().*member - without.records.back().*member;
  };
  EXPECT_NEAR(grown(&StepRecord::step_seconds), 0.005, 1e-12);
  EXPECT_NEAR(grown(&StepRecord::exposed_communication_seconds), 0.005, 1e-12);
  EXPECT_NEAR(grown(&StepRecord::forward_seconds), 0, 1e-12);
  EXPECT_NEAR(with.wire_seconds - without.wire_seconds, 0.004, 1e-12);
  EXPECT_EQ(with.records.back().sent_bytes, without.records.back().sent_bytes);
  std::map<std::string, Span> spans;
  for (const Span& span : with.spans.front()) spans.try_emplace(span.label, span);
  const Span& buffers = spans.at(kBuffersLabel);
  EXPECT_EQ(buffers.kind, SpanKind::kExchange);
  EXPECT_EQ(buffers.lane, "data");
  EXPECT_EQ(buffers.bytes, 4'000'000U);
  const auto forward = std::ranges::find(with.spans.front(), SpanKind::kForward, &Span::kind);
  EXPECT_EQ(forward->begin_seconds, buffers.end_seconds);
  EXPECT_EQ(SimulateSteps(config, 0, 2, 0)[1].records.front().step_seconds,
            with.records.front().step_seconds);

  config.cost.exchange_host_seconds = 0.002;
  config.cost.exchange_seconds_per_element = 1e-9;
  EXPECT_NEAR(config.cost.BroadcastSeconds(2), 0.005 + 0.002 + 0.001, 1e-12);
  EXPECT_EQ(config.cost.BroadcastSeconds(1), 0);
}

// The first two of three tensors are selected as one unit and gathered in 0.8 s when the second is
// ready. The third is a unit alone and takes the same.
TEST(ModelEngine, ExchangesOfPayloadsHaveAnOverlapOfTheirOwn) {
  ModelConfig config =
      Tenths("behind", {{0, 2, Sparsified::kBehind, 0.1}, {2, 3, Sparsified::kBehind, 0.1}}, 0,
             LinkCost::FromAlphaBeta(0.8, 0));
  EXPECT_NEAR(StepSeconds(config), 3.8, 1e-9);  // 2 to 2.8, 3 to 3.8
  config.cost.fused_overlap = 0.5;              // 2 to 3.3, to 4.1
  EXPECT_NEAR(StepSeconds(config), 4.1, 1e-9);
  config.cost.fused_overlap = 0;  // 3 to 3.8, to 4.6
  EXPECT_NEAR(StepSeconds(config), 4.6, 1e-9);
  config.cost.fused_overlap.reset();
  config.cost.payload_overlap = 0;
  EXPECT_NEAR(StepSeconds(config), 4.6, 1e-9);
  config.cost.fused_overlap = 1;
  EXPECT_NEAR(StepSeconds(config), 3.8, 1e-9);
  // Selected alone, no tensor is fused with another.
  config.plan.units = {{0, 1, Sparsified::kBehind, 0.1}, {1, 3, Sparsified::kBehind, 0.1}};
  config.cost.payload_overlap = 1;
  config.cost.fused_overlap = 0;
  EXPECT_NEAR(StepSeconds(config), 3.8, 1e-9);  // 1 to 1.8, 3 to 3.8
}

// The first exchange of 1.2 s overlaps the second tensor's backward and selection, or its backward
// alone.
TEST(ModelEngine, ExchangesPauseWhileSelectionsSynchroniseWithinHooks) {
  ModelConfig config =
      Tenths("ahead", {{0, 1, Sparsified::kAhead, 0.1}, {1, 2, Sparsified::kAhead, 0.1}}, 0.5,
             LinkCost::FromAlphaBeta(1.2, 0));
  EXPECT_NEAR(StepSeconds(config), 3 + 1.2, 1e-9);  // 1.5 to 2.7, 3 to 4.2
  config.cost.selects_in_hooks = true;
  EXPECT_NEAR(StepSeconds(config), 3.2 + 1.2, 1e-9);  // 1.5 to 2.5, 3 to 3.2, to 4.4
}

// The first tensor is selected in 0.5 s beside the second one's
// backward, and gathered in 0.8 s. Within hooks, the second one's backward waits for the selection.
TEST(ModelEngine, SelectsWithinBackwardWhereNothingIsSelectedBesideIt) {
  ModelConfig config = Tenths("behind",
                              {{0, 1, Sparsified::kBehind, 0.1, Lane::kSide},
                               {1, 2, Sparsified::kBehind, 0.1, Lane::kSide}},
                              0.5, LinkCost::FromAlphaBeta(0.8, 0));
  config.cost.side_slowdown = 1.2;
  EXPECT_NEAR(FirstRecord(config).backward_seconds, 2, 1e-9);
  EXPECT_NEAR(FirstRecord(config).step_seconds, 2 + 1.2 * 0.5 + 0.8, 1e-9);
  EXPECT_NEAR(FirstRecord(config).sparsify_seconds, 0, 1e-9);
  config.cost.selects_in_hooks = true;
  EXPECT_NEAR(FirstRecord(config).step_seconds, 2 + 2 * 0.5 + 0.8, 1e-9);
  EXPECT_NEAR(FirstRecord(config).sparsify_seconds, 2 * 0.5, 1e-9);
}

// 100 of 1,000 elements on two ranks: 800 bytes to the host and 1,600 back equal those of 300
// elements.
TEST(ModelEngine, StagesOfPayloadsWhatTheyHaveAndOfDenseSumsAllOfThem) {
  ModelConfig config = Tenths("ahead", {{0, 1, Sparsified::kAhead, 0.1}}, 0);
  config.cost.exchange_seconds_per_element = 1e-3;
  EXPECT_NEAR(StepSeconds(config), 2, 1e-9);
  config.cost.stages_payloads = true;
  EXPECT_NEAR(StepSeconds(config), 1.3, 1e-9);
  const PlanInput input = InputOf(config.layout, config.topology, 0.1, Sparsified::kAhead,
                                  config.backward, config.cost);
  const PlanTimes times(input, "test");
  EXPECT_NEAR(times.HostSecondsPerExchange(1000, 800), 0.3, 1e-9);
  EXPECT_NEAR(times.HostSecondsPerExchange(1000), 1, 1e-9);
  ModelConfig dense = OneTensor(2);
  dense.cost.exchange_seconds_per_element = 1e-3;
  const double before = StepSeconds(dense);
  dense.cost.stages_payloads = true;
  EXPECT_EQ(StepSeconds(dense), before);
}

// 100 of 1,000 elements at 1 ms a byte around a ring of two: 0.8 s, with indices of 8 bytes 1.2 s.
// Dense payloads have no indices.
TEST(ModelEngine, CountsTheBytesOfAnEntryAsTheyTravel) {
  ModelConfig config =
      Tenths("ahead", {{0, 1, Sparsified::kAhead, 0.1}}, 0, LinkCost::FromAlphaBeta(0, 1e-3));
  const double narrow = StepSeconds(config);
  EXPECT_NEAR(SimulateStep(config, 0, 0).wire_seconds, 0.8, 1e-9);
  config.cost.entry_bytes = 12;
  EXPECT_NEAR(StepSeconds(config) - narrow, 0.4, 1e-9);
  ModelConfig dense = OneTensor(2);
  const double before = StepSeconds(dense);
  dense.cost.entry_bytes = 12;
  EXPECT_EQ(StepSeconds(dense), before);
}

TEST(ModelEngine, MakesRanksOnOneMachineShareItsCores) {
  ModelConfig config = OneTensor(4);
  config.cores_per_machine = 2;
  config.ranks_per_machine = 4;
  const double shared = StepSeconds(config);
  config.ranks_per_machine = 1;
  const double alone = StepSeconds(config);
  EXPECT_NEAR(shared - alone, 0.036, 1e-9);  // all computation takes twice as long
}

TEST(ModelEngine, LeavesTheCoresToOthersWhereComputeSleeps) {
  ModelConfig config = OneTensor(4);
  config.cores_per_machine = 2;
  config.backward.sleeps = true;
  const double alone = StepSeconds(config);
  config.ranks_per_machine = 4;
  const double shared = StepSeconds(config);
  EXPECT_NEAR(shared - alone, 0.005, 1e-9);  // the update alone takes twice as long
}

// About a tenth is selected; the counts have a spread.
ModelConfig OneSpreadTensor(int ranks) {
  ModelConfig config = OneTensor(ranks);
  config.plan.units[0] = {0, 1, Sparsified::kAhead, 0.1};
  SetStrategy(config, "ahead");
  config.sparsifier = "dgc";
  config.selection = {0.0, 0.2};
  config.cost.selection["dgc"].Add(0.1, PiecewiseLinear({{0, 1e-5}}));
  return config;
}

TEST(ModelEngine, DrawsTheSameCountsAgain) {
  const ModelConfig config = OneSpreadTensor(3);
  const ModelStep first = SimulateStep(config, 3, 0);
  const ModelStep again = SimulateStep(config, 3, 0);
  const ModelStep other = SimulateStep(config, 4, 0);
  EXPECT_EQ(first.records[1].selected, again.records[1].selected);
  EXPECT_NE(first.records[0].selected, first.records[1].selected);
  EXPECT_NE(first.records[1].selected, other.records[1].selected);
}

// Selects its one tensor twice, for two residuals.
class TwoResiduals final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    const Range range = engine.layout().tensor(tensor).range();
    for (const char* residual : {"local", "inter"}) {
      const Handle selected =
          engine.Sparsify({.range = range, .density = 0.1, .residual = residual});
      exchanges_.push_back(engine.Exchange({.pattern = SparseSum{{selected}}}));
    }
  }
  void BackwardEnd(Engine& engine) override { engine.Apply({.exchange = exchanges_.front()}); }

 private:
  std::vector<Handle> exchanges_;
};

TEST(ModelEngine, DrawsOtherCountsForEachResidual) {
  ModelConfig config = OneSpreadTensor(2);
  const std::uint64_t once = SimulateStep(config, 3, 0).records[0].selected;
  config.make_strategy = [] { return std::make_unique<TwoResiduals>(); };
  const std::uint64_t both = SimulateStep(config, 3, 0).records[0].selected;
  EXPECT_NE(both, 2 * once);
}

TEST(ModelEngine, NamesASparsifierThatTheProfileLacks) {
  ModelConfig config = OneSpreadTensor(2);
  config.sparsifier = "topk";
  ExpectError(FailureKind::kConfig, {"topk"}, [&] { SimulateStep(config, 0, 0); });
}

}  // namespace
}  // namespace sparfuse::testing
