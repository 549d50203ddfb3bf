// Simulates the step whose seconds are published for many methods: 8 ranks, links of 50 us and 0.8
// ns a byte, one buffer that is sparsified behind.
#pragma once

#include <memory>
#include <utility>

#include "baselines/registry.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/fusion/plan.hpp"
#include "tests/support/timed_tensors.hpp"

namespace sparfuse::testing {

inline constexpr int kGoldenRanks = 8;
inline constexpr double kGoldenAlpha = 5e-5;
inline constexpr double kGoldenBeta = 8e-10;

// The seconds of a step, the same on all ranks. Forward takes half of backward. Selecting from n
// elements takes 30 us + 0.1 ns n; applying takes 10 us + 20 ps an entry. Copies and additions take
// no time. `cost` holds the remaining costs: the work of the method on the way.
inline double GoldenStepSeconds(const TimedTensors& tensors, double density,
                                std::shared_ptr<const Collective> collective, CostModel cost) {
  ModelConfig config =
      ModelOf(tensors.Layout(), {{Unit{0, tensors.size(), Sparsified::kBehind, density}}},
              {kGoldenRanks, 1});
  config.make_strategy = [] {
    const StrategyDescriptor& behind = FindStrategy("behind");
    return behind.make(ResolveOptions(behind.name, behind.options, {}));
  };
  config.sparse_collective = std::move(collective);
  cost.selection["topk"].Add(density, PiecewiseLinear({{0, 3e-5}, {1e9, 3e-5 + 0.1}}));
  cost.clear_seconds = PiecewiseLinear({{0, 1e-5}});
  cost.seconds_per_entry = 2e-11;
  cost.links.fill(LinkCost::FromAlphaBeta(kGoldenAlpha, kGoldenBeta));
  config.cost = std::move(cost);
  config.backward.backward_seconds = tensors.backward_seconds;
  config.backward.forward_seconds = tensors.AllBackwardSeconds() / 2;
  return SimulateStep(config, 0, 0).records.front().step_seconds;
}

}  // namespace sparfuse::testing
