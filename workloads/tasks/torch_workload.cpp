// Implements TrainingWorkload: a Task and its parameters, driven by LibTorch's autograd.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/data/data_file.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/models/description.hpp"
#include "workloads/models/forward_pass.hpp"
#include "workloads/optimizer/optimizer.hpp"
#include "workloads/recorded/recorded_workload.hpp"
#include "workloads/tasks/task.hpp"
#include "workloads/torch/parameter_set.hpp"
#include "workloads/torch/pch.hpp"
#include "workloads/torch/placement.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {
namespace {

// Streams of random bits that must differ although they share one seed.
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

ModelDescription DescribeWith(const ModelSize& size, const Recipe& recipe, bool unused_parameter) {
  ModelDescription model = Describe(size);
  if (recipe.initial_values == "published") SetPublishedInitialValues(size, model);
  if (unused_parameter) {
    model.WithoutGradient({.name = "unused", .shape = {kUnusedParameterSize}, .mean = 1});
  }
  return model;
}

// The workload's model with the changes that its recipe and its data make.
ModelSize ModelWith(ModelSize size, const Recipe& recipe, const PreparedData* data) {
  std::visit(
      [&](auto& family) {
        if constexpr (requires { family.attention_dropout; })
          family.attention_dropout = recipe.attention_dropout;
      },
      size);
  return data == nullptr ? size : ModelForData(size, data->meta());
}

std::shared_ptr<const PreparedData> OpenData(const WorkloadDescriptor& descriptor,
                                             const WorkloadConfig& config) {
  if (config.data.empty()) return nullptr;
  auto data = std::make_shared<const PreparedData>(
      PreparedFolder(ResolveDataDirectory(config.data_directory), config.data));
  data->CheckId(config.data_id);
  data->CheckFits(descriptor.name, descriptor.kind_of_data);
  return data;
}

// Samples of one rank and micro-step.
std::size_t BatchOf(const WorkloadDescriptor& descriptor, const WorkloadConfig& config) {
  return config.batch_per_worker == 0 ? descriptor.batch_per_worker : config.batch_per_worker;
}

// Seed of the dropout on this batch. It depends on the samples and the epoch alone, so ranks have
// different seeds.
std::uint64_t DropoutSeed(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) {
  constexpr std::uint64_t kDropoutStream = 0x64726f70;
  return RandomBits(RandomBits(epoch_key, kDropoutStream), samples.front());
}

std::unique_ptr<Task> MakeTask(const WorkloadDescriptor& descriptor, const ModelSize& size,
                               const WorkloadConfig& config, const Recipe& recipe,
                               const ParameterSet& parameters,
                               std::shared_ptr<const PreparedData> prepared) {
  const std::filesystem::path data = ResolveDataDirectory(config.data_directory);
  const Precision precision = config.precision;
  const at::Device device = parameters.flat().device();
  const ForwardPass model =
      std::visit([&](const auto& family) { return Build(family, parameters); }, size);
  ForwardPass logits = [model, device, precision](const at::Tensor& batch, Dropout& dropout) {
    const at::Tensor inputs = CopyTo(device, batch);
    const Autocast autocast(device.type(), precision);
    return model(inputs, dropout).to(at::kFloat);
  };
  if (recipe.state == "carried" && !std::holds_alternative<LstmSize>(size)) {
    SPARFUSE_THROW(kConfig, "recipe: state = \"carried\" with workload " + descriptor.name +
                                ": expected one with recurrent layers");
  }
  if (prepared != nullptr) {
    return MakePreparedTask(size, std::move(prepared),
                            {.recipe = recipe,
                             .batch = BatchOf(descriptor, config),
                             .world = config.world,
                             .threads = config.threads,
                             .units_per_sample = descriptor.units_per_sample},
                            std::move(logits));
  }
  if (descriptor.synthetic()) {
    return MakeSyntheticTask(size, descriptor.synthetic_samples, std::move(logits));
  }
  const DataFileSpec& file = descriptor.data_files.front();
  if (descriptor.kind_of_data == "images") {
    return MakeImageTask(ReadImages(data, file), std::move(logits));
  }
  TextSet text = ReadText(data, file);
  SPARFUSE_REQUIRE(std::cmp_equal(text.vocabulary_size, kTextCharacters),
                   "text: written with " + std::to_string(text.vocabulary_size) +
                       " characters, expected " + std::to_string(kTextCharacters));
  if (const auto* bert = std::get_if<BertSize>(&size)) {
    return MakeQuestionTask(text, *bert, std::move(logits));
  }
  return MakeTextTask(SourceOf(std::move(text)), std::move(logits));
}

// Rethrows LibTorch's error as ours, without its stack. A lack of memory has its own type only if
// LibTorch's allocator on the device reports it. cuBLAS, cuDNN and host allocators report it in
// words.
[[noreturn]] void Rethrow(const std::string& during, const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const auto says = [&](std::string_view words) { return text.find(words) != std::string::npos; };
  const bool no_room = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                       says("ALLOC_FAILED") || says("out of memory") || says("allocate memory");
  throw Error(no_room ? FailureKind::kOutOfMemory : FailureKind::kInternal, during + ": " + text);
}

struct LoadedBatch {
  Batch batch;  // in host memory
  std::uint64_t dropout_seed = 0;
};

// Makes batches in parallel with the training: while a step runs, a thread makes the next one's
// batch.
class Loader {
 public:
  using Make = std::function<LoadedBatch(std::uint64_t step, int micro_step)>;

  // `make` is called on one thread at a time, this one's or the loader's.
  Loader(Make make, int micro_steps) : make_(std::move(make)), micro_steps_(micro_steps) {}

  // Returns the batch of a step, and begins the next. A batch out of order is made here and now.
  // Exceptions of `make` are thrown here.
  LoadedBatch Take(std::uint64_t step, int micro_step) {
    const auto begun = std::chrono::steady_clock::now();
    LoadedBatch taken;
    if (next_.valid() && step_ == step && micro_step_ == micro_step) {
      taken = next_.get();
    } else {
      if (next_.valid()) next_.wait();
      taken = make_(step, micro_step);
    }
    waited_seconds_ += SecondsSince(begun);
    const bool last = micro_step + 1 == micro_steps_;
    Begin(last ? step + 1 : step, last ? 0 : micro_step + 1);
    return taken;
  }

  // For how long Take has waited since the last call, in seconds.
  double TakeWaited() { return std::exchange(waited_seconds_, 0); }

 private:
  void Begin(std::uint64_t step, int micro_step) {
    step_ = step;
    micro_step_ = micro_step;
    next_ = std::async(std::launch::async, make_, step, micro_step);
  }

  Make make_;
  int micro_steps_;
  std::uint64_t step_ = 0;
  int micro_step_ = 0;
  std::future<LoadedBatch> next_;  // of these
  double waited_seconds_ = 0;
};

class TorchWorkload final : public TrainingWorkload {
 public:
  // The new objects belong to the current stream, hooks too: an accumulator runs on the stream on
  // which it was made.
  TorchWorkload(const WorkloadDescriptor& descriptor, const WorkloadConfig& config,
                const Options& options, at::Device device)
      : stream_(config.stream),
        device_(device),
        rank_(config.rank),
        accumulation_(config.accumulation),
        nan_step_(IntOption(options, "nan_step")),
        epoch_seed_(RandomBits(config.seed, kEpochStream)),
        recipe_(RecipeFrom(options)),
        data_(OpenData(descriptor, config)),
        size_(ModelWith(descriptor.model, recipe_, data_.get())),
        parameters_(DescribeWith(size_, recipe_, BoolOption(options, "unused_parameter")),
                    config.seed, device_),
        task_(MakeTask(descriptor, size_, config, recipe_, parameters_, data_)),
        sampler_({.samples = task_->training_samples(),
                  .batch = BatchOf(descriptor, config),
                  .rank = config.rank,
                  .world = config.world,
                  .accumulation = config.accumulation,
                  .seed = RandomBits(config.seed, kPermutationStream),
                  .wrap = recipe_.remainder == "wrap",
                  .columns = data_ == nullptr
                                 ? 0
                                 : ColumnsOf(recipe_, BatchOf(descriptor, config), config.world)}),
        course_{config.total_steps, static_cast<double>(sampler_.steps_per_epoch()), config.world},
        plateau_(recipe_) {
    if (data_ == nullptr && task_->training_samples() != descriptor.training_samples) {
      SPARFUSE_THROW(kInternal, descriptor.name + ": the data has " +
                                    std::to_string(task_->training_samples()) +
                                    " training samples, but the catalog says " +
                                    std::to_string(descriptor.training_samples));
    }
    if (!config.weights.empty()) LoadWeights(config);
    averaged_.assign(parameters_.infos().size(), nullptr);
    since_.assign(parameters_.infos().size(), 0);
    optimizer_.emplace(recipe_, static_cast<std::size_t>(parameters_.flat().numel()), stream_);
    const Expression no_decay(recipe_.no_decay, "recipe: no_decay");
    for (const ParameterInfo& info : parameters_.infos()) {
      decays_.push_back(recipe_.no_decay.empty() || !no_decay.FoundIn(info.name));
    }
    if (data_ != nullptr) {
      loader_.emplace([this](std::uint64_t step, int micro_step) { return Load(step, micro_step); },
                      accumulation_);
    }
    for (std::size_t i = 0; i < parameters_.infos().size(); ++i) {
      // Each parameter has one accumulator. It runs once all uses of the parameter have added their
      // part.
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
    const CurrentStream current(stream_);
    for (std::size_t i = 0; i < averaged_.size(); ++i) {
      parameters_.tensor(i).mutable_grad().reset();
      averaged_[i] = nullptr;
    }
    losses_.clear();
  }

  void Prepare(std::uint64_t step, int micro_step) override {
    OnDevice("a batch", [&] {
      std::erase_if(prepared_, [&](const Prepared& made) { return made.step != step; });
      prepared_.push_back(Make(step, micro_step, dropped_from_));
    });
  }

  void BeginForward(std::uint64_t step, int micro_step) override {
    OnDevice("the forward pass", [&] {
      step_ = step;
      Prepared made = Take(step, micro_step);
      loss_ = task_->Loss(made.batch, made.dropout);
      losses_.push_back(loss_.detach());
      if (dropped_from_.empty()) dropped_from_ = made.dropout.asked();
    });
  }

  float Forward(std::uint64_t step, int micro_step) override {
    BeginForward(step, micro_step);
    return OnDevice("the forward pass", [&] { return losses_.back().item<float>(); });
  }

  double MeanLoss() override {
    return OnDevice("the loss", [&] {
      double mean = 0;
      for (const at::Tensor& loss : losses_) {
        mean += loss.item<float>() / static_cast<float>(losses_.size());
      }
      return mean;
    });
  }

  void Backward(bool last_micro_step) override {
    OnDevice("the backward pass", [&] {
      last_micro_step_ = last_micro_step;
      at::Tensor loss = std::exchange(loss_, at::Tensor());
      if (accumulation_ > 1) loss = loss / accumulation_;
      loss.backward();
    });
  }

  void SetGradient(std::size_t parameter, const float* averaged) override {
    averaged_[parameter] = averaged;
  }

  void Update(std::uint64_t step) override {
    parts_.clear();
    for (std::size_t i = 0; i < averaged_.size(); ++i) {
      if (averaged_[i] == nullptr) continue;
      const ParameterInfo& info = parameters_.infos()[i];
      parts_.push_back({.offset = info.offset,
                        .size = info.numel,
                        .gradient = averaged_[i],
                        .decays = decays_[i] != 0,
                        .rows = info.rows(),
                        .since = since_[i]});
    }
    if (recipe_.clip_norm > 0) Clip();
    optimizer_->Step(parameters_.flat().mutable_data_ptr<float>(), parts_, step,
                     LearningRateAt(step));
  }

  void CountUpdatesFrom(std::size_t parameter, std::uint64_t step) override {
    since_[parameter] = step;
  }

  void Observe(double loss) override { plateau_.Observe(loss); }
  std::uint64_t TrainingSamples() const override { return task_->training_samples(); }
  std::uint64_t StepsPerEpoch() const override { return sampler_.steps_per_epoch(); }
  double LearningRateAt(std::uint64_t step) const override {
    return plateau_.factor() * LearningRate(recipe_, step, course_);
  }
  double TakeLoaderWait() override { return loader_ ? loader_->TakeWaited() : 0; }

  std::vector<float> Statistics() override {
    const at::Tensor& kept = parameters_.statistics();
    std::vector<float> values(static_cast<std::size_t>(kept.numel()));
    OnDevice("a copy of statistics", [&] { OnHost(values.data(), values.size()).copy_(kept); });
    return values;
  }
  void SetStatistics(std::span<const float> values) override {
    SPARFUSE_REQUIRE(std::cmp_equal(values.size(), parameters_.statistics().numel()),
                     "statistics of another model");
    OnDevice("a copy of statistics", [&] {
      parameters_.statistics().copy_(OnHost(const_cast<float*>(values.data()), values.size()));
    });
  }

  std::vector<DeviceSpan<float>> DeviceState() override {
    const at::Tensor& flat = parameters_.flat();
    std::vector<DeviceSpan<float>> state{
        {flat.mutable_data_ptr<float>(), static_cast<std::size_t>(flat.numel()), stream_}};
    for (const DeviceSpan<float>& part : optimizer_->DeviceState()) state.push_back(part);
    return state;
  }

  void CopyState(std::size_t part, std::span<float> host) override {
    OnDevice("a copy of the state", [&] { OnHost(host.data(), host.size()).copy_(StateOf(part)); });
  }

  void SetState(std::size_t part, std::span<const float> host) override {
    OnDevice("a copy of the state",
             [&] { StateOf(part).copy_(OnHost(const_cast<float*>(host.data()), host.size())); });
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    return OnDevice("an evaluation", [&] { return task_->Evaluate(max_samples); });
  }

  std::optional<double> UnigramBaseline() const override { return task_->UnigramBaseline(); }
  std::string Predictions() const override { return task_->Predictions(); }

 private:
  // The inputs of a forward pass beside the parameters, on the device.
  struct Prepared {
    std::uint64_t step = 0;
    int micro_step = 0;
    Batch batch;
    Dropout dropout;
  };

  // Runs `work` with the configured stream as LibTorch's current stream.
  template <class Work>
  std::invoke_result_t<Work> OnDevice(const char* during, Work work) {
    const CurrentStream current(stream_);
    try {
      return work();
    } catch (const c10::Error& error) {
      Rethrow(during, error);
    }
  }

  void LoadWeights(const WorkloadConfig& config) {
    const auto file = WeightsFile(ResolveDataDirectory(config.data_directory), config.weights);
    const SafeTensors weights(file);
    if (const std::string own = weights.Sha256(); !own.starts_with(config.weights_id)) {
      SPARFUSE_THROW(kData,
                     file.string() + ": its SHA-256 is " + own + ", expected " + config.weights_id +
                         "..., with which the trial was planned: the same file on every host");
    }
    const WeightMap map = MapWeights(size_, weights.tensors());
    map.Require(file.string());
    parameters_.Fill(map, weights.tensors());
  }

  // Clips the gradient. Its norm waits for the device.
  void Clip() {
    OnDevice("the gradient's norm", [&] {
      std::vector<at::Tensor> norms;
      const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device_);
      for (const Optimizer::Part& part : parts_) {
        const at::Tensor gradient = at::from_blob(const_cast<float*>(part.gradient),
                                                  {static_cast<std::int64_t>(part.size)}, options);
        norms.push_back(at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble));
      }
      const at::Tensor all = at::stack(norms).to(at::kCPU).contiguous();
      const std::vector<float> factors =
          ClipFactors(recipe_, {all.const_data_ptr<double>(), norms.size()});
      for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].factor = factors[i];
    });
  }

  LoadedBatch Load(std::uint64_t step, int micro_step) {
    const std::span<const std::uint32_t> samples = sampler_.Batch(step, micro_step);
    const std::uint64_t epoch_key = RandomBits(epoch_seed_, sampler_.EpochOf(step));
    return {task_->MakeBatch(samples, epoch_key), DropoutSeed(samples, epoch_key)};
  }

  Prepared Make(std::uint64_t step, int micro_step, const std::vector<DroppedFrom>& ahead) {
    const LoadedBatch made = loader_ ? loader_->Take(step, micro_step) : Load(step, micro_step);
    if (full_batch_.empty()) full_batch_ = made.batch.inputs.sizes().vec();
    const bool as_before = made.batch.inputs.sizes() == full_batch_;
    return {step,
            micro_step,
            {CopyTo(device_, made.batch.inputs), CopyTo(device_, made.batch.targets),
             made.batch.begins},
            Dropout(made.dropout_seed, device_, as_before ? ahead : std::vector<DroppedFrom>())};
  }

  Prepared Take(std::uint64_t step, int micro_step) {
    for (auto made = prepared_.begin(); made != prepared_.end(); ++made) {
      if (made->step != step || made->micro_step != micro_step) continue;
      Prepared taken = std::move(*made);
      prepared_.erase(made);
      return taken;
    }
    return Make(step, micro_step, {});
  }

  void OnGradient(std::size_t parameter) {
    const ParameterInfo& info = parameters_.infos()[parameter];
    at::Tensor& gradient = parameters_.tensor(parameter).mutable_grad();
    if (!gradient.is_contiguous() || gradient.scalar_type() != at::kFloat) {
      SPARFUSE_THROW(kInternal, "gradient of " + info.name + " is not contiguous float32");
    }
    if (parameter == 0 && rank_ == 0 && std::cmp_equal(step_, nan_step_)) {
      gradient.view({-1}).narrow(0, 0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    if (hook_) hook_(parameter, gradient.const_data_ptr<float>(), info.numel);
  }

  static at::Tensor OnHost(float* values, std::size_t size) {
    return at::from_blob(values, {static_cast<std::int64_t>(size)}, at::kFloat);
  }
  at::Tensor StateOf(std::size_t part) {
    const DeviceSpan<float> state = DeviceState()[part];
    return at::from_blob(state.data, {static_cast<std::int64_t>(state.size)},
                         at::TensorOptions(at::kFloat).device(device_));
  }

  const Stream stream_;
  const at::Device device_;
  const int rank_;
  const int accumulation_;
  const std::int64_t nan_step_;
  const std::uint64_t epoch_seed_;
  const Recipe recipe_;
  const std::shared_ptr<const PreparedData> data_;  // null: the workload has its own data
  const ModelSize size_;
  ParameterSet parameters_;
  std::unique_ptr<Task> task_;
  Sampler sampler_;
  const Course course_;
  Plateau plateau_;
  std::vector<char> decays_;              // by parameter: whether weight decay applies
  std::vector<std::int64_t> full_batch_;  // the shape of the first batch's inputs
  std::optional<Loader> loader_;          // loads prepared data
  std::optional<Optimizer> optimizer_;
  std::vector<const float*> averaged_;     // by parameter; null: no gradient in this step
  std::vector<std::uint64_t> since_;       // by parameter: Optimizer::Part::since
  std::vector<Optimizer::Part> parts_;     // arguments of Optimizer::Update
  std::vector<Prepared> prepared_;         // micro-steps of one step
  std::vector<DroppedFrom> dropped_from_;  // by forward pass; empty: none has run, or none drops
  // Autograd holds accumulators weakly; the hooks live as long as these pointers.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  GradientHook hook_;
  std::uint64_t step_ = 0;
  bool last_micro_step_ = false;
  at::Tensor loss_;
  std::vector<at::Tensor> losses_;  // losses of the micro-steps so far, without their graphs
};

}  // namespace

std::unique_ptr<TrainingWorkload> MakeWorkload(std::string_view name,
                                               const WorkloadConfig& config) {
  const WorkloadDescriptor& descriptor = FindWorkload(name);
  if (descriptor.sleeps) return MakeRecordedWorkload(descriptor, config);
  const Options options =
      ResolveOptions("workload " + descriptor.name, descriptor.options, config.options);
  SetThreads(config.threads);
  const at::Device device = PlaceOf(config.stream, config.precision);
  SetNumerics(device.type(), config.precision, config.deterministic);
  const CurrentStream current(config.stream);
  try {
    return std::make_unique<TorchWorkload>(descriptor, config, options, device);
  } catch (const c10::Error& error) {
    Rethrow("making " + descriptor.name, error);
  }
}

}  // namespace sparfuse::workloads
