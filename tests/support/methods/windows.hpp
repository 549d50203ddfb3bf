// Trains ranks that are threads for windows of steps, on a problem whose gradients are made up.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/engine/live/live_engine.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {

// The value of an integer option.
inline std::int64_t Whole(int value) { return value; }

using Floats = std::vector<float>;

// One rank's optimizer: updates w with gradient g at step t, from 1.
using Inner = std::function<void(Floats& w, const Floats& g, int t)>;

inline Inner Sgd(float rate, float momentum = 0) {
  return [rate, momentum, m = Floats()](Floats& w, const Floats& g, int) mutable {
    m.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = momentum * m[i] + g[i];
      w[i] -= rate * m[i];
    }
  };
}

inline Inner AdamW(double rate, double beta1, double beta2, double epsilon, double decay) {
  return [=, m = std::vector<double>(), v = std::vector<double>()](Floats& w, const Floats& g,
                                                                   int t) mutable {
    m.resize(w.size());
    v.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, t)), v_hat = v[i] / (1 - std::pow(beta2, t));
      w[i] = static_cast<float>(w[i] * (1 - rate * decay) -
                                rate * m_hat / (std::sqrt(v_hat) + epsilon));
    }
  };
}

struct Windows {
  int workers = 2;
  std::vector<std::size_t> tensors = {4};
  Options planner = {};   // of planner "fragments"
  Options strategy = {};  // of strategy "local-steps"
  std::function<Floats(int rank, const Floats& w, int t)> gradient;
  std::function<Inner()> inner = [] { return Sgd(0.1f); };
  std::function<Floats(int rank)> start;
  int steps = 8;
  // Runs before step t (from 1) on each rank.
  std::function<void(LiveEngine&, int t)> before = [](LiveEngine&, int) {};
  std::chrono::milliseconds deadline = std::chrono::seconds(60);

  // Makes each rank's configuration; if set, it replaces `tensors`, `planner` and `strategy`.
  std::function<LiveConfig()> configure = {};
  bool verify = false;  // checks the selections of each step

  GradientLayout Layout() const { return LayoutOf(tensors); }
  Options Resolved() const {
    const StrategyDescriptor& part = FindStrategy("local-steps");
    return ResolveOptions(part.name, part.options, strategy);
  }
  Plan MakePlan() const {
    const GradientLayout layout = Layout();
    const PlannerDescriptor& part = FindPlanner(kFragmentsPlanner);
    return part.make(ResolveOptions(part.name, part.options, planner))
        ->MakePlan({layout, {workers, 1}});
  }
  LiveConfig Configure() const {
    LiveConfig config;
    if (configure) {
      config = configure();
      config.deadline = deadline;
      return config;
    }
    config.layout = Layout();
    config.plan = MakePlan();
    config.topology = {workers, 1};
    config.strategy = FindStrategy("local-steps").make(Resolved());
    config.local_steps = LocalStepsOf(Resolved());
    config.dense_collective = CoreCollective("ring-allreduce");
    config.sparse_collective = CoreCollective("sparse-allgather");
    config.deadline = deadline;
    return config;
  }
};

// The history of one rank: [steps], the state after each step, flat.
struct WindowHistory {
  std::vector<Floats> parameters, anchors, outer;
  std::vector<StepRecord> records;
  Floats finished, finished_anchor;  // after FinishWindows
  StepRecord finish;
  std::size_t memory = 0;
  std::uint64_t mass_checks = 0, mass_violations = 0;
};

inline std::vector<WindowHistory> Train(const Windows& windows) {
  std::vector<WindowHistory> histories(static_cast<std::size_t>(windows.workers));
  RunRanks(windows.workers, 1, windows.deadline, [&](ProgressLoop& loop) {
    WindowHistory& history = histories[static_cast<std::size_t>(loop.rank())];
    ThreadPool pool(1);
    Floats w = windows.start(loop.rank());
    const Inner update = windows.inner();
    LiveEngine engine(windows.Configure(), loop, pool);
    const GradientLayout& layout = engine.layout();
    const Range whole{0, layout.numel()};
    const auto copy = [](std::span<const float> of) { return Floats(of.begin(), of.end()); };
    ParameterView view;
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      view.push_back(std::span(w).subspan(layout.tensor(t).offset, layout.tensor(t).numel));
    }
    engine.BeginWindows(view);
    for (int t = 1; t <= windows.steps; ++t) {
      windows.before(engine, t);
      const Floats gradient = windows.gradient(loop.rank(), w, t);
      engine.BeginStep(static_cast<std::uint64_t>(t - 1), windows.verify);
      for (std::size_t i = 0; i < layout.tensors(); ++i) {
        const TensorEntry& tensor = layout.tensor(i);
        engine.AnnounceGradient(i, std::span(gradient).subspan(tensor.offset, tensor.numel));
      }
      engine.EndBackward();
      engine.FinishStep();
      engine.BeginUpdate();
      Floats own;
      for (std::size_t i = 0; i < layout.tensors(); ++i) {
        const auto part = engine.Averaged(i);
        own.insert(own.end(), part.begin(), part.end());
      }
      EXPECT_EQ(std::memcmp(own.data(), gradient.data(), own.size() * sizeof(float)), 0);
      update(w, own, t);
      engine.Synchronise();
      history.records.push_back(engine.EndStep());
      history.parameters.push_back(w);
      history.anchors.push_back(copy(engine.Anchor(whole)));
      history.outer.push_back(copy(engine.OuterState(whole)));
    }
    history.finish = engine.FinishWindows();
    history.finished = w;
    history.finished_anchor = copy(engine.Anchor(whole));
    history.memory = engine.method_memory_bytes();
    history.mass_checks = engine.mass_checks();
    history.mass_violations = engine.mass_violations();
  });
  return histories;
}

}  // namespace sparfuse::testing
