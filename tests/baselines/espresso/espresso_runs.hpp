// Runs Espresso's options over ranks that are threads, and models them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "baselines/espresso/espresso_paths.hpp"
#include "baselines/espresso/espresso_planner.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/sparsify/reused_threshold/reused_threshold.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::baselines {

// A run of the strategy, or of another one with the same units.
struct Setting {
  int option = 0;
  Topology topology = {};
  double density = 0.05;
  Device device = {};
  Lane lane = Lane::kSide;
  std::vector<std::size_t> sizes = testing::kTensorSizes;
  std::string_view sparsifier = "topk";
  double begins_with = 1;   // times the density, in the first step
  double decay = 1;         // of residuals
  std::size_t tensors = 1;  // of a unit
  int threshold_period = 1;
  std::uint16_t partitions = 1;  // of a unit, where another strategy makes them
  std::unique_ptr<Strategy> (*strategy)() = [] {
    return std::unique_ptr<Strategy>(new EspressoPaths);
  };
};

inline GradientLayout LayoutOf(const Setting& setting) {
  GradientLayout layout;
  for (const std::size_t n : setting.sizes) {
    const auto numel = static_cast<std::int64_t>(n);
    const std::vector<std::int64_t> flat{numel}, matrix{numel / 8, 8};
    layout.Add("tensor", n % 8 == 0 ? matrix : flat, n);
  }
  return layout;
}

inline Plan PlanOf(const Setting& setting) {
  Plan plan;
  for (std::size_t t = 0; t < setting.sizes.size(); t += setting.tensors) {
    Unit unit{t, t + setting.tensors};
    if (EspressoCompresses(setting.option)) {
      unit = {t, t + setting.tensors, Sparsified::kBehind, setting.density, setting.lane};
    }
    unit.path = static_cast<std::uint8_t>(setting.option);
    if (unit.sparsified == Sparsified::kBehind) unit.partitions = setting.partitions;
    plan.units.push_back(unit);
  }
  return plan;
}

inline std::vector<testing::RankResult> Trained(
    const Setting& setting, const testing::Gradients& gradient = testing::IntegerGradient,
    std::chrono::milliseconds wait = testing::kLiveDeadline,
    const testing::Wrap& wrap = testing::Unwrapped) {
  return testing::RunLive(
      [&] {
        LiveConfig config;
        config.layout = LayoutOf(setting);
        config.plan = PlanOf(setting);
        config.topology = setting.topology;
        config.device = setting.device;
        config.strategy = setting.strategy();
        config.sparsifier =
            ReuseThreshold(testing::SparsifierOf(setting.sparsifier), setting.threshold_period);
        config.feedback.kind = FeedbackKind::kResidual;
        config.feedback.decay = setting.decay;
        config.dense_collective = CoreCollective("ring-allreduce");
        config.sparse_collective = CoreCollective("sparse-allgather");
        config.deadline = testing::kLiveDeadline;
        return config;
      },
      setting.topology.ranks, gradient, 999,
      [&](LiveEngine& engine, int step) { engine.SetDensity(step == 0 ? setting.begins_with : 1); },
      wrap, 0, wait);
}

// spread: of selected counts. simulated: ranks that do not follow others, at least.
inline ModelStep Modelled(const Setting& setting, double spread = 0, int simulated = 0) {
  ModelConfig model;
  model.layout = LayoutOf(setting);
  model.plan = PlanOf(setting);
  model.topology = setting.topology;
  model.make_strategy = [] { return std::make_unique<EspressoPaths>(); };
  model.sparsifier = "topk";
  model.selection = {0.0, spread};
  model.dense_collective = CoreCollective("ring-allreduce");
  model.sparse_collective = CoreCollective("sparse-allgather");
  model.cost = testing::EvenCost();
  model.backward = testing::EvenBackward(setting.sizes.size());
  return SimulateStep(model, 0, simulated);
}

inline void ExpectModelled(const Setting& setting, const std::vector<testing::RankResult>& live) {
  const ModelStep modelled = Modelled(setting);
  for (std::size_t rank = 0; rank < live.size(); ++rank) {
    const StepRecord& counted = live[rank].records.back();
    const StepRecord& expected = modelled.records[rank];
    EXPECT_EQ(expected.sent_bytes, counted.sent_bytes) << rank;
    EXPECT_EQ(expected.received_bytes, counted.received_bytes) << rank;
    EXPECT_EQ(expected.messages_sent, counted.messages_sent) << rank;
    EXPECT_EQ(expected.payload_bytes, counted.payload_bytes) << rank;
    EXPECT_EQ(expected.selected, counted.selected) << rank;
    EXPECT_EQ(expected.exchanges, counted.exchanges) << rank;
  }
}

}  // namespace sparfuse::baselines
