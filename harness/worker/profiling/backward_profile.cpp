#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "core/device/runtime.hpp"
#include "harness/worker/profiling/measurement.hpp"
#include "harness/worker/profiling/profiler.hpp"
#include "harness/worker/rank/replica.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;

class BackwardProfiler {
 public:
  BackwardProfiler(const Rank& rank, workloads::TrainingWorkload& workload,
                   const std::vector<std::size_t>& ready_order, const GradientLayout& layout)
      : rank_(rank),
        workload_(workload),
        ready_order_(ready_order),
        layout_(layout),
        micro_steps_(rank.config.accumulation),
        engine_(MeasuringConfig(rank, layout, std::make_unique<Idle>()), rank.loop, rank.pool),
        position_(workload.Parameters().size()),
        gradients_(position_.size()) {
    for (std::size_t t = 0; t < layout_.tensors(); ++t) position_[ready_order_[t]] = t;
  }
  ~BackwardProfiler() { workload_.SetGradientHook({}); }
  BackwardProfiler(const BackwardProfiler&) = delete;
  BackwardProfiler& operator=(const BackwardProfiler&) = delete;

  void Measure(const BackwardEffort& effort, const std::function<void(const std::string&)>& say,
               Profile& profile) {
    for (int i = 1; i < effort.warmup_steps; ++i) HookedStep();
    const auto begin = Clock::now();  // the last warm-up step gives the duration of a step
    UnhookedPass();
    HookedStep();
    // All ranks run as many steps as the slowest rank allows.
    const double pair =
        1e-9 * static_cast<double>(rank_.Max({std::llround(1e9 * SecondsSince(begin))}).front());
    const int fitting = pair > 0 ? static_cast<int>(effort.seconds / pair) : 0;
    const int steps = std::max(effort.steps, fitting);
    samples_.clear();
    for (int i = 0; i < steps; ++i) {
      say("backward, step " + std::to_string(i + 1) + " of " + std::to_string(steps) + ", " +
          std::to_string(std::llround(std::ceil(pair * (steps - i)))) + " s");
      Sample(HookedStep());
      samples_["unhooked"].push_back(UnhookedPass());
    }
    Write(steps, profile);
  }

 private:
  StepRecord HookedStep() {
    PrepareStep(rank_, workload_, step_);
    rank_.Synchronise();
    workload_.SetGradientHook(
        [this](std::size_t parameter, const float* gradient, std::size_t numel) {
          gradients_[parameter] = gradient;
          engine_.AnnounceGradient(position_[parameter], {gradient, numel});
        });
    const auto begin = Clock::now();
    engine_.BeginStep(step_, false);
    workload_.ClearGradients();
    for (int micro = 0; micro < micro_steps_; ++micro) {
      engine_.BeginForward();
      workload_.BeginForward(step_, micro);
      engine_.EndForward();
      workload_.Backward(micro + 1 == micro_steps_);
      if (micro + 1 < micro_steps_) engine_.EndMicroStep();
    }
    engine_.EndBackward();
    for (const std::size_t parameter : ready_order_)
      workload_.SetGradient(parameter, gradients_[parameter]);
    engine_.BeginUpdate();
    workload_.Update(step_++);
    const StepRecord record = engine_.EndStep();
    rank_.Synchronise();
    samples_["all ranks"].push_back(SecondsSince(begin));
    return record;
  }

  double UnhookedPass() {
    PrepareStep(rank_, workload_, step_);
    rank_.Synchronise();
    return PassWithoutHooks(rank_, workload_, step_++);
  }

  void Sample(const StepRecord& record) {
    samples_["begin"].push_back(record.step_seconds - record.forward_seconds -
                                record.backward_seconds - record.update_seconds);
    samples_["forward"].push_back(record.forward_seconds);
    samples_["update"].push_back(record.update_seconds);
    double hooked = 0;  // of the last micro-step, comparable to a pass without hooks
    for (const Span& span : engine_.timeline().Sorted()) {
      if (span.kind != SpanKind::kBackward) continue;
      const double seconds = span.end_seconds - span.begin_seconds;
      samples_["backward " + span.label].push_back(seconds);
      if (span.label != "micro-step") hooked += seconds;
    }
    samples_["hooked"].push_back(hooked);
  }

  Estimate EstimateOf(const std::string& name) const {
    const auto it = samples_.find(name);
    return MeanOverRanks(rank_, it == samples_.end() ? Estimate{} : MedianEstimate(it->second));
  }

  void Write(int steps, Profile& profile) const {
    std::vector<double> errors;
    const Estimate tail = EstimateOf("backward end");
    const Estimate unhooked = EstimateOf("unhooked");
    BackwardTimes times;
    double sum = tail.value;
    for (std::size_t t = 0; t < layout_.tensors(); ++t) {
      const TensorEntry& tensor = layout_.tensor(t);
      const Estimate seconds = EstimateOf("backward " + tensor.name);
      times.tensors.push_back({tensor.name, tensor.shape, tensor.numel, seconds.value});
      errors.push_back(seconds.relative_error());
      sum += seconds.value;
    }
    const double scale = sum > 0 ? unhooked.value / sum : 1;
    for (ProfiledTensor& tensor : times.tensors) tensor.seconds = scale * tensor.seconds;
    profile.relative_errors["/backward/tensors"] = {0, errors};

    const Measurement measured(profile);
    const auto value = [&](const std::string& name, const Estimate& estimate) {
      return measured.Value("/backward/" + name + "_seconds", estimate);
    };
    Estimate forward = EstimateOf("forward");
    const Estimate micro_step = EstimateOf("backward micro-step");
    forward.value += (micro_steps_ - 1) * micro_step.value;
    forward.standard_error =
        std::hypot(forward.standard_error, (micro_steps_ - 1) * micro_step.standard_error);
    times.steps = steps;
    times.begin_seconds = value("begin", EstimateOf("begin"));
    times.forward_seconds = value("forward", forward);
    times.tail_seconds = scale * tail.value;
    times.hooked_seconds = value("hooked", EstimateOf("hooked"));
    times.unhooked_seconds = value("unhooked", unhooked);
    times.update_seconds = value("update", EstimateOf("update"));
    times.all_ranks_seconds = value("all_ranks", EstimateOf("all ranks"));
    profile.backward = std::move(times);
  }

  const Rank& rank_;
  workloads::TrainingWorkload& workload_;
  const std::vector<std::size_t>& ready_order_;
  const GradientLayout& layout_;
  const int micro_steps_;
  LiveEngine engine_;
  std::vector<std::size_t> position_;    // positions in ready order, by parameter
  std::vector<const float*> gradients_;  // by parameter
  std::uint64_t step_ = 0;
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace

LiveConfig MeasuringConfig(const Rank& rank, GradientLayout layout,
                           std::unique_ptr<Strategy> strategy) {
  LiveConfig config;
  config.plan = {{Unit{0, layout.tensors(), Sparsified::kNever, 1.0}}};
  config.layout = std::move(layout);
  config.topology = {rank.size(), rank.config.ranks_per_node};
  config.strategy = std::move(strategy);
  config.device = rank.device;
  config.compute = rank.compute;
  return config;
}

double PassWithoutHooks(const Rank& rank, workloads::TrainingWorkload& workload,
                        std::uint64_t step) {
  workload.SetGradientHook({});
  workload.ClearGradients();
  double seconds = 0;
  for (int micro = 0; micro < rank.config.accumulation; ++micro) {
    workload.Forward(step, micro);  // waits for its end
    const auto begin = Clock::now();
    workload.Backward(micro + 1 == rank.config.accumulation);
    if (rank.device.kind != DeviceKind::kHost) gpu::Synchronize(rank.compute);
    seconds = SecondsSince(begin);
  }
  return seconds;
}

void ProfileBackward(const Rank& rank, workloads::TrainingWorkload& workload,
                     const std::vector<std::size_t>& ready_order, const GradientLayout& layout,
                     const BackwardEffort& effort,
                     const std::function<void(const std::string&)>& say, Profile& profile) {
  BackwardProfiler(rank, workload, ready_order, layout).Measure(effort, say, profile);
}

}  // namespace sparfuse::harness
