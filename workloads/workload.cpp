// The one TrainingWorkload: a Task and its parameters, driven by LibTorch's autograd.
#include "workloads/workload.hpp"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "core/error.hpp"
#include "workloads/catalog.hpp"
#include "workloads/data_file.hpp"
#include "workloads/description.hpp"
#include "workloads/models.hpp"
#include "workloads/optimizer.hpp"
#include "workloads/parameter_set.hpp"
#include "workloads/pch.hpp"
#include "workloads/sampler.hpp"
#include "workloads/task.hpp"

namespace sparfuse {
namespace {

// Streams of random bits that must differ although the seed is one.
constexpr std::uint64_t kPermutationStream = 1;
constexpr std::uint64_t kEpochStream = 2;

constexpr std::int64_t kUnusedParameterSize = 64;

void SetThreads(int threads) {
  SPARFUSE_REQUIRE(threads >= 1,
                   "workload: threads is " + std::to_string(threads) + ", expected at least 1");
  at::set_num_threads(threads);
  static std::once_flag once;  // LibTorch refuses a second call
  std::call_once(once, [] { at::set_num_interop_threads(1); });
}

ModelDescription DescribeWith(const ModelSize& size, bool unused_parameter) {
  ModelDescription model = Describe(size);
  if (unused_parameter) {
    model.WithoutGradient({.name = "unused", .shape = {kUnusedParameterSize}, .mean = 1});
  }
  return model;
}

std::unique_ptr<Task> MakeTask(const WorkloadDescriptor& descriptor,
                               const std::filesystem::path& data, const ParameterSet& parameters) {
  ForwardPass logits =
      std::visit([&](const auto& size) { return Build(size, parameters); }, descriptor.model);
  if (descriptor.synthetic()) {
    return MakeSyntheticTask(descriptor.model, descriptor.synthetic_samples, std::move(logits));
  }
  const DataFileSpec& file = descriptor.data_files.front();
  if (descriptor.kind_of_data == "images") {
    return MakeImageTask(ReadImages(data, file), std::move(logits));
  }
  TextSet text = ReadText(data, file);
  SPARFUSE_REQUIRE(std::cmp_equal(text.vocabulary_size, kTextCharacters),
                   "text: written with " + std::to_string(text.vocabulary_size) +
                       " characters, expected " + std::to_string(kTextCharacters));
  if (const auto* bert = std::get_if<BertSize>(&descriptor.model)) {
    return MakeQuestionTask(text, *bert, std::move(logits));
  }
  return MakeTextTask(std::move(text), std::move(logits));
}

class TorchWorkload final : public TrainingWorkload {
 public:
  TorchWorkload(const WorkloadDescriptor& descriptor, const WorkloadConfig& config,
                const Options& options)
      : rank_(config.rank),
        accumulation_(config.accumulation),
        total_steps_(config.total_steps),
        nan_step_(IntOption(options, "nan_step")),
        epoch_seed_(RandomBits(config.seed, kEpochStream)),
        recipe_(RecipeFrom(options)),
        parameters_(DescribeWith(descriptor.model, BoolOption(options, "unused_parameter")),
                    config.seed),
        task_(MakeTask(descriptor, ResolveDataDirectory(config.data_directory), parameters_)),
        sampler_({.samples = task_->training_samples(),
                  .batch = config.batch_per_worker == 0 ? descriptor.batch_per_worker
                                                        : config.batch_per_worker,
                  .rank = config.rank,
                  .world = config.world,
                  .accumulation = config.accumulation,
                  .seed = RandomBits(config.seed, kPermutationStream)}) {
    averaged_.assign(parameters_.infos().size(), nullptr);
    optimizer_.emplace(recipe_, parameters_.flat().size());
    for (std::size_t i = 0; i < parameters_.infos().size(); ++i) {
      // One accumulator a parameter, which runs once all its uses have given their part.
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_.tensor(i));
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const torch::autograd::variable_list& outputs,
                    const torch::autograd::variable_list&) {
            if (last_micro_step_) OnGradient(i);
            return outputs;
          }));
      accumulators_.push_back(std::move(accumulator));
    }
  }

  const std::vector<ParameterInfo>& Parameters() const override { return parameters_.infos(); }

  void SetGradientHook(GradientHook hook) override { hook_ = std::move(hook); }

  void ClearGradients() override {
    for (std::size_t i = 0; i < averaged_.size(); ++i) {
      parameters_.tensor(i).mutable_grad().reset();
      averaged_[i] = nullptr;
    }
  }

  float Forward(std::uint64_t step, int micro_step) override {
    step_ = step;
    loss_ = task_->Loss(sampler_.Batch(step, micro_step),
                        RandomBits(epoch_seed_, sampler_.EpochOf(step)));
    return loss_.item<float>();
  }

  void Backward(bool last_micro_step) override {
    last_micro_step_ = last_micro_step;
    at::Tensor loss = std::exchange(loss_, at::Tensor());
    if (accumulation_ > 1) loss = loss / accumulation_;
    loss.backward();
  }

  void SetGradient(std::size_t parameter, const float* averaged) override {
    averaged_[parameter] = averaged;
  }

  void Update(std::uint64_t step) override {
    const double rate = LearningRate(recipe_, step, total_steps_);
    for (std::size_t i = 0; i < averaged_.size(); ++i) {
      if (averaged_[i] == nullptr) continue;
      const ParameterInfo& info = parameters_.infos()[i];
      optimizer_->Step(parameters_.flat(), info.offset, {averaged_[i], info.numel}, step, rate);
    }
  }

  std::vector<std::span<float>> State() override {
    std::vector<std::span<float>> state{parameters_.flat()};
    for (const std::span<float> part : optimizer_->State()) state.push_back(part);
    return state;
  }

  Evaluation Evaluate(std::size_t max_samples) override { return task_->Evaluate(max_samples); }

  std::optional<double> UnigramBaseline() const override { return task_->UnigramBaseline(); }

 private:
  void OnGradient(std::size_t parameter) {
    const ParameterInfo& info = parameters_.infos()[parameter];
    at::Tensor& gradient = parameters_.tensor(parameter).mutable_grad();
    if (!gradient.is_contiguous() || gradient.scalar_type() != at::kFloat) {
      SPARFUSE_THROW(kInternal, "gradient of " + info.name + " is not contiguous float32");
    }
    float* values = gradient.mutable_data_ptr<float>();
    if (parameter == 0 && rank_ == 0 && std::cmp_equal(step_, nan_step_)) {
      values[0] = std::numeric_limits<float>::quiet_NaN();
    }
    if (hook_) hook_(parameter, values, info.numel);
  }

  const int rank_;
  const int accumulation_;
  const std::uint64_t total_steps_;
  const std::int64_t nan_step_;
  const std::uint64_t epoch_seed_;
  const Recipe recipe_;
  ParameterSet parameters_;
  std::unique_ptr<Task> task_;
  Sampler sampler_;
  std::optional<Optimizer> optimizer_;
  std::vector<const float*> averaged_;  // by parameter; null: no gradient this step
  // Autograd holds accumulators weakly; the hooks live as long as these.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  GradientHook hook_;
  std::uint64_t step_ = 0;
  bool last_micro_step_ = false;
  at::Tensor loss_;
};

}  // namespace

std::unique_ptr<TrainingWorkload> MakeWorkload(std::string_view name,
                                               const WorkloadConfig& config) {
  const WorkloadDescriptor& descriptor = FindWorkload(name);
  const Options options =
      ResolveOptions("workload " + descriptor.name, descriptor.options, config.options);
  SetThreads(config.threads);
  return std::make_unique<TorchWorkload>(descriptor, config, options);
}

}  // namespace sparfuse
