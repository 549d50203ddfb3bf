#include "workloads/recorded/recorded_workload.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/sleep.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/models/description.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::workloads {

const RecordedTimes& TimesOf(const ModelSize& model) {
  static const RecordedTimes digits_resnet{
      .batch = 32,
      .forward_us = 15040.9,
      .backward_us = {295.37, 10.83,   123.04,  2.5,    2914.78, 132.22,  2.66,    2846.24,
                      179.51, 2.49,    2857.72, 133.41, 2.69,    1936.74, 727.7,   175.29,
                      3.21,   2305.17, 183.19,  2.61,   2263.81, 230.34,  2.59,    2292.78,
                      187.96, 3.04,    1886.84, 790.94, 172.34,  2.7,     2519.56, 194.6,
                      2.82,   2521.57, 269.89,  3.1,    2493.54, 194.93,  3.19,    2520.1,
                      267.03, 2.92,    187.25},
      .tail_us = 85.59};
  if (!std::holds_alternative<DigitsResnetSize>(model)) {
    SPARFUSE_THROW(kInternal, "no times are recorded of this model");
  }
  return digits_resnet;
}

namespace {

// Deviations of log(s) over rows and over elements, and a. With these values, theta of the
// selections equals theta of digits-resnet (tests/workloads/recorded): see OverlapOf.
constexpr double kRowDeviation = 0.7;
constexpr double kElementDeviation = 0.7;
constexpr double kShared = 0.3;

// The largest distance between the offsets into the normal deviates in two steps.
constexpr std::size_t kOffsets = 65536;

constexpr std::uint64_t kRowStream = 1;
constexpr std::uint64_t kElementStream = 2;
constexpr std::uint64_t kSharedStream = 3;
constexpr std::uint64_t kOwnStream = 4;
constexpr std::uint64_t kInitialStream = 5;
constexpr std::uint64_t kUnusedParameterSize = 64;

// Returns normal deviates of a stream. Source: G. E. P. Box, M. E. Muller, "A note on the
// generation of random normal deviates", Annals of Mathematical Statistics 29, 1958.
std::vector<float> Normal(std::size_t n, std::uint64_t key) {
  std::vector<float> values(n + n % 2);
  const auto uniform = [&](std::size_t i) {  // in (0, 1]
    return (static_cast<double>(RandomBits(key, i) >> 11) + 1) * 0x1p-53;
  };
  for (std::size_t i = 0; i < n; i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform(i)));
    const double angle = 2 * std::numbers::pi * uniform(i + 1);
    values[i] = static_cast<float>(radius * std::cos(angle));
    values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  values.resize(n);
  return values;
}

// Sleeps through consecutive stretches of time. Oversleeping one shortens the next.
class Sleeper {
 public:
  void Begin() { until_ = MonotonicNanoseconds(); }
  void Sleep(double seconds) {
    until_ += std::llround(1e9 * seconds);
    while (MonotonicNanoseconds() < until_) bell_.Wait(until_);
  }
  // Moves the end of the sleep by the time that others used since the last sleep.
  class Pause {
   public:
    explicit Pause(Sleeper& sleeper) : sleeper_(sleeper), begun_(MonotonicNanoseconds()) {}
    ~Pause() { sleeper_.until_ += MonotonicNanoseconds() - begun_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Sleeper& sleeper_;
    std::int64_t begun_;
  };

 private:
  Doorbell bell_;
  std::int64_t until_ = 0;
};

class RecordedWorkload final : public TrainingWorkload {
 public:
  RecordedWorkload(const WorkloadDescriptor& descriptor, const WorkloadConfig& config)
      : rank_(config.rank),
        accumulation_(config.accumulation),
        total_steps_(config.total_steps),
        options_(ResolveOptions("workload " + descriptor.name, descriptor.options, config.options)),
        nan_step_(IntOption(options_, "nan_step")),
        recipe_(RecipeFrom(options_)),
        times_(TimesOf(descriptor.model)) {
    const std::size_t batch =
        config.batch_per_worker == 0 ? descriptor.batch_per_worker : config.batch_per_worker;
    stretch_ = 1e-6 * static_cast<double>(batch) / static_cast<double>(times_.batch);
    ModelDescription model = Describe(descriptor.model);
    if (BoolOption(options_, "unused_parameter")) {
      model.WithoutGradient({.name = "unused", .shape = {kUnusedParameterSize}, .mean = 1});
    }
    Register(model);
    Draw(model, config.seed);
    optimizer_.emplace(recipe_, flat_.size());
    averaged_.assign(infos_.size(), nullptr);
    since_.assign(infos_.size(), 0);
  }

  const std::vector<ParameterInfo>& Parameters() const override { return infos_; }
  void SetGradientHook(GradientHook hook) override { hook_ = std::move(hook); }
  void ClearGradients() override { std::fill(averaged_.begin(), averaged_.end(), nullptr); }
  void Prepare(std::uint64_t, int) override {}

  void BeginForward(std::uint64_t step, int micro_step) override {
    sleeper_.Begin();
    // The last micro-step draws the mean over all micro-steps at once.
    if (micro_step + 1 == accumulation_) MakeGradient(step);
    sleeper_.Sleep(stretch_ * times_.forward_us);
  }

  double MeanLoss() override { return 0; }

  float Forward(std::uint64_t step, int micro_step) override {
    BeginForward(step, micro_step);
    return 0;
  }

  void Backward(bool last_micro_step) override {
    sleeper_.Begin();
    for (std::size_t t = 0; t < ready_order_.size(); ++t) {
      sleeper_.Sleep(stretch_ * times_.backward_us[t]);
      if (!last_micro_step || !hook_) continue;
      const Sleeper::Pause others(sleeper_);
      const ParameterInfo& info = infos_[ready_order_[t]];
      hook_(ready_order_[t], gradient_.data() + info.offset, info.numel);
    }
    sleeper_.Sleep(stretch_ * times_.tail_us);
  }

  void SetGradient(std::size_t parameter, const float* averaged) override {
    averaged_[parameter] = averaged;
  }

  void Update(std::uint64_t step) override {
    parts_.clear();
    for (std::size_t i = 0; i < averaged_.size(); ++i) {
      if (averaged_[i] != nullptr)
        parts_.push_back({.offset = infos_[i].offset,
                          .size = infos_[i].numel,
                          .gradient = averaged_[i],
                          .rows = infos_[i].rows(),
                          .since = since_[i]});
    }
    optimizer_->Step(flat_.data(), parts_, step,
                     LearningRate(recipe_, step, {.total_steps = total_steps_}));
  }

  void CountUpdatesFrom(std::size_t parameter, std::uint64_t step) override {
    since_[parameter] = step;
  }

  std::vector<DeviceSpan<float>> DeviceState() override {
    std::vector<DeviceSpan<float>> state{{flat_.data(), flat_.size(), {}}};
    for (const DeviceSpan<float>& part : optimizer_->DeviceState()) state.push_back(part);
    return state;
  }
  void CopyState(std::size_t part, std::span<float> host) override {
    const std::span<const float> state = State()[part];
    std::copy(state.begin(), state.end(), host.begin());
  }
  void SetState(std::size_t part, std::span<const float> host) override {
    std::copy(host.begin(), host.end(), State()[part].begin());
  }

  Evaluation Evaluate(std::size_t) override {
    SPARFUSE_THROW(kUnsupported,
                   "a workload that sleeps instead of computing has nothing to "
                   "evaluate");
  }

 private:
  void Register(const ModelDescription& model) {
    std::map<std::string, std::size_t> by_name;
    std::size_t end = 0;
    for (const ParameterDescription& parameter : model.parameters()) {
      by_name[parameter.name] = infos_.size();
      infos_.push_back({parameter.name, parameter.shape, parameter.numel(), end});
      end += parameter.numel();
    }
    flat_.resize(end);
    for (const LayerTensor& tensor : model.InReadyOrder().tensors) {
      ready_order_.push_back(by_name.at(tensor.name));
    }
    if (ready_order_.size() != times_.backward_us.size()) {
      SPARFUSE_THROW(kInternal, "times are recorded of " +
                                    std::to_string(times_.backward_us.size()) + " tensors of " +
                                    std::to_string(ready_order_.size()));
    }
  }

  void Draw(const ModelDescription& model, std::uint64_t seed) {
    const auto stream = [&](std::uint64_t which) { return RandomBits(seed, which); };
    const std::size_t n = flat_.size();
    const std::vector<float> initial = Normal(n, stream(kInitialStream));
    scale_ = Normal(n, stream(kElementStream));
    for (std::size_t p = 0; p < infos_.size(); ++p) {
      const ParameterDescription& parameter = model.parameters()[p];
      const auto rows = static_cast<std::size_t>(infos_[p].shape.front());
      const std::vector<float> by_row = Normal(rows, RandomBits(stream(kRowStream), p));
      for (std::size_t i = 0; i < infos_[p].numel; ++i) {
        const std::size_t at = infos_[p].offset + i;
        flat_[at] = static_cast<float>(parameter.mean + parameter.deviation * initial[at]);
        scale_[at] = static_cast<float>(std::exp(
            kRowDeviation * by_row[i * rows / infos_[p].numel] + kElementDeviation * scale_[at]));
      }
    }
    shared_ = Normal(n + kOffsets, stream(kSharedStream));
    own_key_ = RandomBits(stream(kOwnStream), static_cast<std::uint64_t>(rank_));
    own_ = Normal(n + kOffsets, own_key_);
    gradient_.resize(n);
  }

  // Takes milliseconds, within the time of the forward pass.
  void MakeGradient(std::uint64_t step) {
    const auto weight = static_cast<float>(std::sqrt(1 - kShared * kShared));
    const float* shared = shared_.data() + RandomBits(kSharedStream, step) % kOffsets;
    const float* own = own_.data() + RandomBits(own_key_, step) % kOffsets;
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      gradient_[i] = scale_[i] * (static_cast<float>(kShared) * shared[i] + weight * own[i]);
    }
    if (rank_ == 0 && std::cmp_equal(step, nan_step_)) {
      gradient_[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  const int rank_;
  const int accumulation_;
  const std::uint64_t total_steps_;
  const Options options_;
  const std::int64_t nan_step_;
  const Recipe recipe_;
  const RecordedTimes& times_;
  double stretch_ = 0;  // seconds per recorded microsecond
  std::vector<ParameterInfo> infos_;
  std::vector<std::size_t> ready_order_;  // indices of parameters
  std::vector<float> flat_;
  std::vector<float> scale_;   // s
  std::vector<float> shared_;  // c, beginning at each step's offset
  std::vector<float> own_;     // z
  std::uint64_t own_key_ = 0;
  std::vector<float> gradient_;
  std::optional<Optimizer> optimizer_;
  std::vector<const float*> averaged_;  // by parameter; null: no gradient in this step
  std::vector<std::uint64_t> since_;    // by parameter: Optimizer::Part::since
  std::vector<Optimizer::Part> parts_;  // arguments of Optimizer::Update
  GradientHook hook_;
  Sleeper sleeper_;
};

}  // namespace

std::unique_ptr<TrainingWorkload> MakeRecordedWorkload(const WorkloadDescriptor& descriptor,
                                                       const WorkloadConfig& config) {
  if (config.stream.device.kind == DeviceKind::kCuda) {
    SPARFUSE_THROW(kUnsupported,
                   descriptor.name + ": its compute sleeps on the host; expected device = \"cpu\"");
  }
  return std::make_unique<RecordedWorkload>(descriptor, config);
}

}  // namespace sparfuse::workloads
