// Describes the operations and parameters of a model once: its layer table and its parameters both
// follow from this description, so that the two cannot differ. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/models/layers.hpp"
#include "workloads/models/model_sizes.hpp"

namespace sparfuse::workloads {

struct ParameterDescription {
  std::string name;
  std::vector<std::int64_t> shape;
  double mean = 0;  // initial values are normal; a deviation of 0 makes them one value
  double deviation = 0;
  bool uniform = false;  // of that deviation, in the place of normal
  double macs = 0;       // see LayerTensor

  std::size_t numel() const;
};

// The running mean and variance of a batch normalisation, [width] each.
struct RunningStatistics {
  std::string name;  // of the normalisation
  std::int64_t width = 0;
};

// The parameters of operations, in the order in which forward runs the operations: the registration
// order. Positions count how often one sample's forward pass applies the weight.
class ModelDescription {
 public:
  // Adds one operation with these parameters, registered in this order. `ready` lists them in the
  // order in which its backward delivers their gradients; empty: in order. Returns the operation.
  std::size_t Operation(std::vector<ParameterDescription> parameters,
                        const std::vector<std::size_t>& ready = {});

  // Square kernels [out, in, kernel, kernel]; `deviation` by He's rule for the number of inputs.
  std::size_t Convolution(const std::string& name, std::int64_t out, std::int64_t in,
                          std::int64_t kernel, std::int64_t positions, bool bias = false);
  // A normalisation's weight and bias, [width] each.
  void Norm(const std::string& name, std::int64_t width);
  // As above, with the statistics of the batch; their running mean and variance are kept as
  // buffers.
  void BatchNorm(const std::string& name, std::int64_t width);
  // weight [out, in] and bias [out], whose gradient comes first.
  void Linear(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t positions,
              double deviation, double further_macs = 0);
  void Embedding(const std::string& name, std::int64_t rows, std::int64_t width, double deviation);
  // A later operation uses the weight of an earlier one: its gradient is ready where forward first
  // uses it.
  void TieWeight(std::string_view name, double macs);
  // Parameters that no loss depends on.
  void WithoutGradient(ParameterDescription parameter);

  // The last operation is registered last, but forward runs it just before operation `before`.
  void MoveLastBefore(std::size_t before);

  const std::vector<ParameterDescription>& parameters() const noexcept { return parameters_; }
  // For another choice of initial values.
  std::vector<ParameterDescription>& parameters() noexcept { return parameters_; }
  // Whether SetPublishedInitialValues set them.
  bool has_published_values = false;
  // Of BatchNorm, in order.
  const std::vector<RunningStatistics>& statistics() const noexcept { return statistics_; }
  LayerTable InReadyOrder() const;

 private:
  std::vector<ParameterDescription> parameters_;
  // By operation in the order of forward: indices of its parameters as their gradients come.
  std::vector<std::vector<std::size_t>> operations_;
  std::vector<std::size_t> without_gradient_;
  std::vector<RunningStatistics> statistics_;
};

ModelDescription Describe(const ModelSize& size);

// Gives a description of this size the initial values of the programs that the papers train it
// with; initial_values.cpp names their sources.
void SetPublishedInitialValues(const ModelSize& size, ModelDescription& model);

}  // namespace sparfuse::workloads
