// Trains ranks that are threads for windows of steps, on a problem whose gradients are made up.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/live/live_engine.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {

// The value of an integer option.
inline std::int64_t Whole(int value) { return value; }

// The options of strategy "local-steps" for a rule of the outer step.
struct WindowOptions {
  int every = 1;
  int delay = 0;
  std::string outer = "average";
  double mix = 0, rate = 1, momentum = 0;

  operator Options() const {
    return {{"every", Whole(every)}, {"delay", Whole(delay)},     {"outer", outer}, {"mix", mix},
            {"outer_rate", rate},    {"outer_momentum", momentum}};
  }
};

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

// Small integers. float32 holds the parameters exactly for a few steps of rate 1/8 from Sixteenths.
inline Floats WholeGradient(int rank, const Floats& w, int t) {
  Floats gradient(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    gradient[i] = static_cast<float>((static_cast<int>(i) * 7 + rank * 13 + t * 5) % 17 - 8);
  }
  return gradient;
}

inline Floats Sixteenths(std::size_t elements) {
  Floats w(elements);
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<float>(static_cast<int>(i) % 31 - 15) / 16;
  }
  return w;
}

// Falls with w, with noise that differs by element, rank and step.
inline Floats NoisyGradient(int rank, const Floats& w, int t) {
  Floats gradient(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto drawn = (i * 2654435761u + static_cast<unsigned>(97 * rank + 31 * t)) % 1024;
    gradient[i] = w[i] / 8 + static_cast<float>(drawn) / 512 - 1;
  }
  return gradient;
}

// The same of an optimizer whose state the engine sees: [arrays] as long as w. since: of each
// element, the update before which its state was zero.
using InnerWithState = std::function<void(Floats& w, std::vector<Floats>& state, const Floats& g,
                                          int t, const std::vector<int>& since)>;

struct Windows {
  int workers = 2;
  std::vector<std::size_t> tensors = {4};
  Options planner = {};   // of planner "fragments"
  Options strategy = {};  // of strategy "local-steps"
  std::function<Floats(int rank, const Floats& w, int t)> gradient;
  std::function<Inner()> inner = [] { return Sgd(0.1f); };
  std::size_t arrays = 0;          // of the state of `with_state`
  InnerWithState with_state = {};  // instead of `inner`
  std::function<Floats(int rank)> start;
  int steps = 8;
  // Runs before step t (from 1) on each rank.
  std::function<void(LiveEngine&, int t)> before = [](LiveEngine&, int) {};
  std::chrono::milliseconds deadline = std::chrono::seconds(60);

  // Makes each rank's configuration; if set, it replaces `tensors`, `planner` and `strategy`.
  std::function<LiveConfig()> configure = {};
  bool verify = false;  // checks the selections of each step
  bool pauses = false;  // LiveConfig::pauses_between_steps
  Device device = {};   // where gradients and parameters lie; the optimizer is on the host
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> wrap =
      [](std::unique_ptr<Communicator> world) { return world; };

  GradientLayout Layout() const { return LayoutOf(tensors); }
  Options Resolved() const {
    const StrategyDescriptor& part = FindStrategy("local-steps");
    return ResolveOptions(part.name, part.options, strategy);
  }
  Plan MakePlan() const {
    const GradientLayout layout = Layout();
    return PlanOf(kFragmentsPlanner, {layout, {workers, 1}}, planner);
  }
  LiveConfig Configure() const {
    LiveConfig config;
    if (configure) {
      config = configure();
      config.deadline = deadline;
      config.device = device;
      if (arrays > 0) config.inner_arrays = arrays;
      return config;
    }
    config.inner_arrays = arrays;
    config.layout = Layout();
    config.plan = MakePlan();
    config.topology = {workers, 1};
    config.strategy = FindStrategy("local-steps").make(Resolved());
    config.local_steps = LocalStepsOf(Resolved());
    config.dense_collective = CoreCollective("ring-allreduce");
    config.sparse_collective = CoreCollective("sparse-allgather");
    config.deadline = deadline;
    config.device = device;
    return config;
  }
};

// The steps of these windows in the model.
inline ModelConfig ModelOf(const Windows& windows) {
  ModelConfig model =
      EvenModelOf(windows.Layout(), windows.MakePlan(), Topology{windows.workers, 1});
  model.sparsifier = {};
  model.make_strategy = [resolved = windows.Resolved()] {
    return FindStrategy("local-steps").make(resolved);
  };
  model.local_steps = LocalStepsOf(windows.Resolved());
  return model;
}

// Floats of the host that an engine sees in its own memory, and writes there.
class SeenByEngine {
 public:
  // values: outlives this, and stays where it is.
  SeenByEngine(const LiveEngine& engine, Floats& values)
      : stream_(engine.compute_stream()), values_(values) {
    if (stream_.device.kind != DeviceKind::kHost) {
      there_ = Buffer<float>(values.size(), stream_.device, "the test's floats");
    }
    Give();
  }
  std::span<float> get() const {
    return stream_.device.kind == DeviceKind::kHost ? std::span(values_)
                                                    : std::span(there_.data(), there_.size());
  }
  // The engine sees what the host has written, in the order of its compute stream.
  void Give() { Copy(there_.data(), values_.data()); }
  // The host sees what the engine has written.
  void Take() {
    Copy(values_.data(), there_.data());
    if (stream_.device.kind != DeviceKind::kHost) gpu::Synchronize(stream_);
  }

 private:
  void Copy(float* to, const float* from) {
    if (stream_.device.kind == DeviceKind::kHost) return;
    gpu::CopyAsync(stream_, to, from, values_.size() * sizeof(float));
  }
  Stream stream_;
  Floats& values_;
  Buffer<float> there_;
};

// The history of one rank: [steps], the state after each step, flat.
struct WindowHistory {
  std::vector<Floats> parameters, anchors, outer;
  std::vector<std::vector<Floats>> inner;         // [steps][arrays]
  std::vector<std::vector<std::size_t>> renewed;  // [steps], tensors
  std::vector<StepRecord> records;
  Floats finished, finished_anchor;  // after FinishWindows
  StepRecord finish;
  std::size_t memory = 0;
  std::uint64_t mass_checks = 0, mass_violations = 0;
};

inline std::vector<WindowHistory> Train(const Windows& windows) {
  std::vector<WindowHistory> histories(static_cast<std::size_t>(windows.workers));
  const auto body = [&](ProgressLoop& loop) {
    WindowHistory& history = histories[static_cast<std::size_t>(loop.rank())];
    ThreadPool pool(1);
    Floats w = windows.start(loop.rank());
    const Inner update = windows.inner();
    Floats gradient(w.size());  // outlives the streams that still work after an error
    LiveConfig config = windows.Configure();
    config.pauses_between_steps = windows.pauses;
    LiveEngine engine(std::move(config), loop, pool);
    const GradientLayout& layout = engine.layout();
    const Range whole{0, layout.numel()};
    const auto copy = [](std::span<const float> of) { return Floats(of.begin(), of.end()); };
    SeenByEngine parameters(engine, w), announced(engine, gradient);
    ParameterView view;
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      view.push_back(parameters.get().subspan(layout.tensor(t).offset, layout.tensor(t).numel));
    }
    std::vector<Floats> state(windows.arrays, Floats(w.size()));
    std::vector<int> since(w.size());
    std::deque<SeenByEngine> state_seen;
    std::vector<ParameterView> inner;
    for (Floats& array : state) {
      const std::span<float> seen = state_seen.emplace_back(engine, array).get();
      ParameterView& of_array = inner.emplace_back();
      for (std::size_t t = 0; t < layout.tensors(); ++t)
        of_array.push_back(seen.subspan(layout.tensor(t).offset, layout.tensor(t).numel));
    }
    engine.BeginWindows(view, inner);
    for (int t = 1; t <= windows.steps; ++t) {
      windows.before(engine, t);
      std::ranges::copy(windows.gradient(loop.rank(), w, t), gradient.begin());
      engine.BeginStep(static_cast<std::uint64_t>(t - 1), windows.verify);
      announced.Give();
      for (std::size_t i = 0; i < layout.tensors(); ++i) {
        const TensorEntry& tensor = layout.tensor(i);
        engine.AnnounceGradient(i, announced.get().subspan(tensor.offset, tensor.numel));
      }
      engine.EndBackward();
      engine.FinishStep();
      engine.BeginUpdate();
      for (std::size_t i = 0; i < layout.tensors(); ++i) {
        const DeviceSpan<const float> own = engine.AveragedOnDevice(i);
        EXPECT_EQ(own.data, announced.get().data() + layout.tensor(i).offset);
        EXPECT_EQ(own.size, layout.tensor(i).numel);
      }
      announced.Take();
      if (windows.with_state) {
        windows.with_state(w, state, gradient, t, since);
      } else {
        update(w, gradient, t);
      }
      parameters.Give();
      for (SeenByEngine& array : state_seen) array.Give();
      engine.Synchronise();
      history.records.push_back(engine.EndStep());
      parameters.Take();
      for (SeenByEngine& array : state_seen) array.Take();
      const auto renewed = engine.Renewed();
      for (const std::size_t tensor : renewed) {
        std::fill_n(since.begin() + static_cast<std::ptrdiff_t>(layout.tensor(tensor).offset),
                    layout.tensor(tensor).numel, t);
      }
      history.inner.push_back(state);
      history.renewed.emplace_back(renewed.begin(), renewed.end());
      history.parameters.push_back(w);
      history.anchors.push_back(copy(engine.Anchor(whole)));
      history.outer.push_back(copy(engine.OuterState(whole)));
    }
    history.finish = engine.FinishWindows();
    parameters.Take();
    history.finished = w;
    history.finished_anchor = copy(engine.Anchor(whole));
    history.memory = engine.method_memory_bytes();
    history.mass_checks = engine.mass_checks();
    history.mass_violations = engine.mass_violations();
  };
  RunRanks(windows.workers, 1, windows.deadline, body, windows.wrap);
  return histories;
}

}  // namespace sparfuse::testing
