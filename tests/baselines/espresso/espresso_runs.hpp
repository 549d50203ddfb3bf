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

// A run of the strategy, or of another strategy with the same units.
struct Setting {
  int option = 0;
  Topology topology = {};
  double density = 0.05;
  Device device = {};
  Lane lane = Lane::kSide;
  std::vector<std::size_t> sizes = testing::kTensorSizes;
  std::string_view sparsifier = "topk";
  double begins_with = 1;   // factor on the density in the first step
  double decay = 1;         // of residuals
  std::size_t tensors = 1;  // of a unit
  int threshold_period = 1;
  std::uint16_t partitions = 1;  // of a unit, for other strategies
  std::unique_ptr<Strategy> (*strategy)() = [] {
    return std::unique_ptr<Strategy>(new EspressoPaths);
  };
};

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
        LiveConfig config = testing::SparseLive(PlanOf(setting), setting.topology, setting.device);
        config.layout = testing::MatricesOf(setting.sizes);
        config.strategy = setting.strategy();
        config.sparsifier =
            ReuseThreshold(testing::SparsifierOf(setting.sparsifier), setting.threshold_period);
        config.feedback.decay = setting.decay;
        return config;
      },
      setting.topology.ranks, gradient, 999,
      [&](LiveEngine& engine, int step) { engine.SetDensity(step == 0 ? setting.begins_with : 1); },
      wrap, 0, wait);
}

// spread: of selected counts. simulated: the least number of ranks that are simulated.
inline ModelStep Modelled(const Setting& setting, double spread = 0, int simulated = 0) {
  ModelConfig model =
      testing::EvenModelOf(testing::MatricesOf(setting.sizes), PlanOf(setting), setting.topology);
  model.make_strategy = [] { return std::make_unique<EspressoPaths>(); };
  model.selection = {0.0, spread};
  return SimulateStep(model, 0, simulated);
}

inline void ExpectModelled(const Setting& setting, const std::vector<testing::RankResult>& live) {
  testing::ExpectCountedAsModelled(Modelled(setting), live);
}

}  // namespace sparfuse::baselines
