// Declares a model with its data and its optimizer, as one rank trains it. This header is free of
// LibTorch; nothing here knows of compression or of other ranks' messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/device/device.hpp"

namespace sparfuse::workloads {

// The precision of matrix products and convolutions; parameters, gradients and optimizer state are
// always float32.
enum class Precision : std::uint8_t {
  kFp32,
  kTf32,  // CUDA only: inputs rounded to 10 bits of mantissa, sums in float32
  kBf16,  // LibTorch's autocast to bfloat16 around the forward pass
};

struct WorkloadConfig {
  int rank = 0;
  int world = 1;
  std::size_t batch_per_worker = 0;  // samples of one micro-step; 0 takes the catalog's default
  int accumulation = 1;              // micro-steps of a step
  std::uint64_t seed = 0;            // of initialisation, permutations and augmentation
  std::uint64_t total_steps = 0;     // where a decaying schedule ends; 0 means it does not decay
  std::string data;        // a prepared data set in the data directory; "": the workload's own data
  std::string data_id;     // that it has to be
  std::string weights;     // initial parameters, likewise; "": drawn from the seed
  std::string weights_id;  // how the SHA-256 of their file has to begin
  // Of LibTorch's operators in this process; the same number again decodes prepared images.
  int threads = 1;
  // The device of the training. On CUDA also the stream on which forward, backward and Update run,
  // which must outlive the workload; null: the device's default stream.
  Stream stream;
  Precision precision = Precision::kFp32;
  // On CUDA: equal runs give equal bits, by slower kernels. Convergence wants that; throughput
  // wants the fastest convolutions, which cuDNN chooses by trial in the first steps.
  bool deterministic = true;
  Options options;                       // checked against the catalog's, completed with defaults
  std::filesystem::path data_directory;  // see ResolveDataDirectory
};

struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
  std::size_t offset = 0;  // first element in State()[0]

  // Of a matrix; 0 for other dimensions.
  std::size_t rows() const { return shape.size() == 2 ? static_cast<std::size_t>(shape[0]) : 0; }
};

struct Evaluation {
  double metric = 0;        // the catalog's `metric`
  double loss = 0;          // mean cross-entropy, nats per image, token or window
  std::size_t samples = 0;  // evaluated
  // Of questions: answers that are right as a whole.
  std::optional<double> exact_match = std::nullopt;
};

// One rank's replica. A step is: ClearGradients; Forward and Backward for each micro-step in turn;
// SetGradient for the parameters that were exchanged; Update.
//
// Memory is the configured device's, float32, contiguous. Calls come from one thread at a time,
// except SetGradient (see there). Deterministic: with one thread, equal configurations and equal
// gradients set give equal losses, gradients and states bit for bit. Initial parameters, batches
// and dropped elements are equal on all devices, bit for bit.
//
// On CUDA, calls run in the order of the configured stream. Only calls that say so wait for it. If
// another stream reads a gradient, the configured one must wait for that (an event) before the next
// ClearGradients, which frees it.
class TrainingWorkload {
 public:
  // Called with a parameter's index in Parameters() and its gradient, [numel], in the memory of the
  // device: on CUDA a device pointer, final in the order of the configured stream.
  using GradientHook =
      std::function<void(std::size_t parameter, const float* gradient, std::size_t numel)>;

  virtual ~TrainingWorkload() = default;

  // All parameters in registration order (first layer first), including parameters on which no loss
  // depends. A tied weight is one parameter.
  virtual const std::vector<ParameterInfo>& Parameters() const = 0;

  // `hook` runs within Backward(true) once for each parameter on which the loss depends, as soon as
  // its gradient is final (for a tied weight after its last use), so last layer first. The gradient
  // is the mean over this rank's micro-steps. Its memory is valid and unchanged until the next
  // ClearGradients. An exception from the hook leaves Backward.
  //
  // On the host it runs on Backward's thread. On CUDA it runs on a thread of autograd, one for a
  // device, while Backward's waits. There the device is CUDA's current one and the configured
  // stream is LibTorch's. "Final" then means that the kernels that make the gradient are in that
  // stream.
  virtual void SetGradientHook(GradientHook hook) = 0;

  // Drops the gradients of the last step, so that nothing accumulates onto them, and forgets the
  // arrays of SetGradient.
  virtual void ClearGradients() = 0;

  // Makes the host's part of BeginForward(step, micro_step): the batch and its dropout, copied to
  // the device. Optional, for one step ahead at most; otherwise BeginForward does it. A step that
  // is timed on CUDA should not include this work, because the papers' programs load their data in
  // parallel with the training.
  virtual void Prepare(std::uint64_t step, int micro_step) = 0;

  // Runs the model on this rank's batch for (step, micro_step), both 0-based, and keeps the graph
  // for Backward. Precondition: 0 <= micro_step < accumulation; no graph is kept from another
  // forward pass.
  virtual void BeginForward(std::uint64_t step, int micro_step) = 0;

  // The batch's loss, averaged over the micro-steps since ClearGradients; may be NaN. Waits for the
  // device.
  virtual double MeanLoss() = 0;

  // BeginForward, then waits for the batch's mean loss and returns it.
  virtual float Forward(std::uint64_t step, int micro_step) = 0;

  // Adds the kept graph's gradients / accumulation and frees the graph. Hooks run only on the last
  // micro-step.
  virtual void Backward(bool last_micro_step) = 0;

  // Names the gradient, [numel], on the device, that the next Update uses for `parameter`. It is
  // read, not copied, in Update, and may be this workload's own gradient or the caller's memory.
  // May be called from any thread, for different parameters at once, if it happens before Update.
  // On CUDA it has to be there in the order of the configured stream, and unchanged until Update's
  // work is done.
  virtual void SetGradient(std::size_t parameter, const float* averaged) = 0;

  // One step of the optimizer. Parameters without a gradient set since ClearGradients keep their
  // value and their optimizer state.
  virtual void Update(std::uint64_t step) = 0;

  // What the optimizer keeps of the parameter is zero now, and it counts its updates from here, as
  // if `step`, of the next Update, were its first. The learning rate goes on.
  virtual void CountUpdatesFrom(std::size_t parameter, std::uint64_t step) = 0;

  // The whole replica as flat arrays: the parameters (padded with zeros between), then the
  // optimizer's state, which exists from the start. To be broadcast into before the first step, and
  // compared bit for bit at the end. Valid for the life of the workload.
  virtual std::vector<DeviceSpan<float>> DeviceState() = 0;
  // The same, if it is on the host.
  std::vector<std::span<float>> State() {
    std::vector<std::span<float>> state;
    for (const DeviceSpan<float>& part : DeviceState()) state.push_back(part.host());
    return state;
  }
  // Copies DeviceState()[part] to the host and back; `host` has its size. Both wait for the device.
  virtual void CopyState(std::size_t part, std::span<float> host) = 0;
  virtual void SetState(std::size_t part, std::span<const float> host) = 0;

  // Running statistics of batch normalisation, on the host; empty if the model keeps none. They
  // follow this rank's batches and are no part of DeviceState(). The ranks differ in them, and an
  // evaluation should use their mean. Setting all ranks' to their mean leaves that mean's course as
  // it would have been. Both wait for the device.
  virtual std::vector<float> Statistics() { return {}; }
  virtual void SetStatistics(std::span<const float>) {}

  // Gives the loss of an evaluation, the same on all ranks, to schedules that follow it.
  virtual void Observe(double /*loss*/) {}

  // Training samples of an epoch over all ranks, and the steps that go through them; 0: its data
  // has no end.
  virtual std::uint64_t TrainingSamples() const { return 0; }
  virtual std::uint64_t StepsPerEpoch() const { return 0; }
  // The rate of Update(step), by the present schedule.
  virtual double LearningRateAt(std::uint64_t /*step*/) const { return 0; }

  // How long forward passes (or Prepare) have waited for data since the last call, in seconds.
  virtual double TakeLoaderWait() { return 0; }

  // Evaluates the model on the test or validation data: its first `max_samples` samples in an order
  // that is the same for all seeds (0: all of them). Deterministic; changes nothing.
  virtual Evaluation Evaluate(std::size_t max_samples) = 0;

  // The model's answers in the last evaluation, as JSON: of questions {"ID": "answer"}; else "".
  virtual std::string Predictions() const { return ""; }

  // The metric of the best predictor without context on the same test data: perplexity of the
  // training text's unigram frequencies. Empty for images.
  virtual std::optional<double> UnigramBaseline() const { return std::nullopt; }
};

// Builds the workload `name` of the catalog. Initial parameters depend on the seed alone. Sets for
// this process LibTorch's threads to config.threads (and its inter-operator threads to one), the
// use of TF32, and the choice of kernels on CUDA. Throws Error{kConfig} for an unknown name or
// option, a batch that the data cannot fill, or TF32 on the host; Error{kData} for a data file that
// is missing or damaged; Error{kUnsupported} for a device that this process does not have or that
// lacks the precision.
std::unique_ptr<TrainingWorkload> MakeWorkload(std::string_view name, const WorkloadConfig& config);

}  // namespace sparfuse::workloads
