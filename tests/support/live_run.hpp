// Runs steps of a LiveEngine over ranks that are threads, with gradients that a test makes up.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/engine/unit_strategy.hpp"
#include "tests/support/methods/counted_steps.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {

inline constexpr std::chrono::milliseconds kLiveDeadline{120000};
inline constexpr int kLiveSteps = 4;

// Some sizes are a single element, some are odd, some are larger than a block of the kernels.
inline const std::vector<std::size_t> kTensorSizes = {10, 1, 640, 64, 9000, 3, 128, 4097};

// Small integers, so that sums are exact in any order.
inline std::vector<float> IntegerGradient(int rank, int step, std::size_t tensor) {
  std::mt19937 generator(
      static_cast<unsigned>(1000003 * rank + 1009 * step + static_cast<int>(tensor)));
  std::vector<float> values(kTensorSizes[tensor]);
  for (float& value : values) value = static_cast<float>(static_cast<int>(generator() % 201) - 100);
  return values;
}

struct RankResult {
  std::vector<std::vector<float>> averaged;  // [steps] flat
  std::vector<float> residual;               // after the last step
  std::vector<StepRecord> records;
  std::vector<std::vector<Span>> spans;  // [steps]
  std::uint64_t mass_checks = 0;
  std::uint64_t mass_violations = 0;
};

using Gradients = std::function<std::vector<float>(int rank, int step, std::size_t tensor)>;

inline constexpr Device kEmulated{DeviceKind::kEmulated, 0};

// The name of a device, for tests that run on the host and on the emulated device.
inline std::string NameOf(Device device) {
  return device.kind == DeviceKind::kHost ? "host" : "emulated";
}

// A gradient in the memory that the engine asks for. Like backward, it writes in the order of the
// engine's compute stream.
class AnnouncedGradient {
 public:
  AnnouncedGradient(const LiveEngine& engine, std::vector<float> values)
      : stream_(engine.compute_stream()), values_(std::move(values)) {
    if (stream_.device.kind == DeviceKind::kHost) return;
    on_device_ = Buffer<float>(values_.size(), stream_.device, "a gradient");
    gpu::CopyAsync(stream_, on_device_.data(), values_.data(), values_.size() * sizeof(float));
  }
  std::span<const float> get() const {
    if (stream_.device.kind == DeviceKind::kHost) return values_;
    return {on_device_.data(), on_device_.size()};
  }
  // Hands the memory to others, in the order of the compute stream.
  void Spoil() {
    if (stream_.device.kind == DeviceKind::kHost) return;
    gpu::FillAsync(stream_, on_device_.data(), 0xff, on_device_.size() * sizeof(float));
  }

 private:
  Stream stream_;
  std::vector<float> values_;
  Buffer<float> on_device_;
};

// The averaged gradients of all tensors, flat.
inline std::vector<float> AveragedOf(const LiveEngine& engine) {
  std::vector<float> flat(engine.layout().numel());
  const Stream stream = engine.compute_stream();
  for (std::size_t t = 0; t < engine.layout().tensors(); ++t) {
    const DeviceSpan<const float> part = engine.AveragedOnDevice(t);
    float* const to = flat.data() + engine.layout().tensor(t).offset;
    if (stream.device.kind == DeviceKind::kHost) {
      std::copy_n(part.data, part.size, to);
    } else {
      gpu::CopyAsync(stream, to, part.data, part.size * sizeof(float));
    }
  }
  if (stream.device.kind != DeviceKind::kHost) gpu::Synchronize(stream);
  return flat;
}

inline std::unique_ptr<Sparsifier> SparsifierOf(std::string_view name) {
  const SparsifierDescriptor& part = FindSparsifier(name);
  return part.make(ResolveOptions(name, part.options, {}), 7);
}

// Tensors of kTensorSizes, named by their sizes.
inline LiveConfig DenseLive(Plan plan, const Topology& topology, Device device = {}) {
  LiveConfig config;
  config.device = device;
  for (const std::size_t n : kTensorSizes) {
    config.layout.Add("t" + std::to_string(n), {static_cast<std::int64_t>(n)}, n);
  }
  config.plan = std::move(plan);
  config.topology = topology;
  config.dense_collective = CoreCollective("ring-allreduce");
  config.deadline = kLiveDeadline;
  return config;
}

// The same units, sent as their plan says, with top-k and a residual.
inline LiveConfig SparseLive(Plan plan, const Topology& topology, Device device = {}) {
  LiveConfig config = DenseLive(std::move(plan), topology, device);
  config.strategy = std::make_unique<UnitStrategy>();
  config.sparsifier = SparsifierOf("topk");
  config.feedback.kind = FeedbackKind::kResidual;
  config.sparse_collective = CoreCollective("sparse-allgather");
  return config;
}

using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
inline std::unique_ptr<Communicator> Unwrapped(std::unique_ptr<Communicator> world) {
  return world;
}

// `configure` makes each rank's engine, whose layout has kTensorSizes. The gradient of tensor
// `without_gradient` is never announced. `before_step` may change the engine between steps. `wrap`
// is the argument of RunRanks. Steps are counted from `first_step` on. No wait for other ranks may
// exceed `wait`.
inline std::vector<RankResult> RunLive(
    const std::function<LiveConfig()>& configure, int workers, const Gradients& gradient_of,
    std::size_t without_gradient = 999,
    const std::function<void(LiveEngine&, int step)>& before_step = {},
    const Wrap& wrap = Unwrapped, int first_step = 0,
    std::chrono::milliseconds wait = kLiveDeadline) {
  std::vector<RankResult> results(static_cast<std::size_t>(workers));
  const auto body = [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    std::deque<AnnouncedGradient> gradients;  // outlives the streams that still work after an error
    LiveConfig config = configure();
    const bool delays = config.delays;
    LiveEngine engine(std::move(config), loop, pool);
    RankResult& result = results[static_cast<std::size_t>(loop.rank())];
    for (int step = first_step; step < first_step + kLiveSteps; ++step) {
      if (before_step) before_step(engine, step);
      engine.BeginStep(static_cast<std::uint64_t>(step), true);
      engine.BeginForward();
      engine.EndForward();
      gradients.clear();
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
        if (t == without_gradient) continue;
        gradients.emplace_back(engine, gradient_of(loop.rank(), step, t));
        engine.AnnounceGradient(t, gradients.back().get());
      }
      engine.EndBackward();
      engine.FinishStep();
      for (AnnouncedGradient& gradient : gradients) gradient.Spoil();
      engine.BeginUpdate();
      result.averaged.push_back(AveragedOf(engine));
      result.records.push_back(engine.EndStep());
      result.spans.push_back(engine.timeline().Sorted());
    }
    if (delays) engine.FinishWindows();
    const auto residual = engine.Residual({0, engine.layout().numel()});
    result.residual.assign(residual.begin(), residual.end());
    result.mass_checks = engine.mass_checks();
    result.mass_violations = engine.mass_violations();
  };
  RunRanks(workers, configure().topology.ranks_per_node, wait, body, wrap);
  return results;
}

// Expects that the model's step counts the same as the last live step.
inline void ExpectCountedAsModelled(const ModelStep& modelled,
                                    const std::vector<RankResult>& live) {
  for (std::size_t rank = 0; rank < live.size(); ++rank) {
    SCOPED_TRACE(rank);
    ExpectSameCounts(modelled.records[rank], live[rank].records.back());
  }
}

// sum over ranks of residuals + P * applied - sum of gradients, over all steps. The result is zeros
// if nothing is lost. It is exact on integer gradients except for the division by P, which rounding
// undoes.
inline std::vector<double> LostMass(const std::vector<RankResult>& results,
                                    const Gradients& gradient_of = IntegerGradient) {
  const int workers = static_cast<int>(results.size());
  std::vector<double> lost(results.front().residual.size());
  for (int step = 0; step < kLiveSteps; ++step) {
    std::size_t offset = 0;
    for (std::size_t t = 0; t < kTensorSizes.size(); offset += kTensorSizes[t++]) {
      for (int rank = 0; rank < workers; ++rank) {
        const auto gradient = gradient_of(rank, step, t);
        for (std::size_t i = 0; i < gradient.size(); ++i) lost[offset + i] -= gradient[i];
      }
    }
    const auto& averaged = results.front().averaged[static_cast<std::size_t>(step)];
    for (std::size_t i = 0; i < lost.size(); ++i)
      lost[i] += std::round(averaged[i] * static_cast<double>(workers));
  }
  for (const RankResult& rank : results) {
    for (std::size_t i = 0; i < lost.size(); ++i) lost[i] += rank.residual[i];
  }
  return lost;
}

// Expects that all ranks apply the same, and that the engine's own mass check agrees.
inline void ExpectEqualReplicas(const std::vector<RankResult>& results) {
  for (const RankResult& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
}

// Expects that nothing is lost, that replicas are equal, and that the engine's own mass check
// agrees.
inline void ExpectSound(const std::vector<RankResult>& results,
                        const Gradients& gradient_of = IntegerGradient) {
  EXPECT_EQ(LostMass(results, gradient_of), std::vector<double>(results[0].residual.size(), 0.0));
  ExpectEqualReplicas(results);
}

}  // namespace sparfuse::testing
