// Lists the parameter tensors of each workload's model without building the model, for planners and
// the model of time, and models too large to train here. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::workloads {

struct LayerTensor {
  std::string name;  // as in the model, e.g. "layer1.0.conv1.weight"
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
  // Multiply-accumulates of the parameter in one sample's forward pass, counted for kernels and
  // matrices only: norms, biases and look-ups have none. Attention's products of activations are
  // counted with the weights that make these activations: queries times keys half and half, the
  // mixing of values with the values' weight (all with the one weight if the three are one).
  double macs = 0;
};

struct LayerTable {
  std::vector<LayerTensor> tensors;           // in ready order: as backward produces the gradients
  std::vector<std::string> without_gradient;  // parameters that never get one (BERT's pooler)

  std::size_t numel() const;  // of `tensors`, without those that get no gradient
  double macs() const;
};

// Whether a workload's name names a table.
inline bool IsTable(std::string_view workload) { return workload.starts_with("table:"); }

// The family of tables that name none.
inline constexpr const char* kTableFamily = "table";

// Of one step of one rank, alone on its device.
struct MeasuredTimes {
  std::size_t batch = 0;    // samples of the step
  std::string measured_on;  // the hardware, and how
  std::vector<double>
      backward_us;  // [tensors] in ready order, since the previous gradient; or none
  std::optional<double> forward_us, update_us;
};

// Describes a model by the list of its tensors in a user's file, instead of by code that builds it.
// That is enough to model its training, and not enough to train it.
struct ModelTable {
  std::string family = kTableFamily;
  LayerTable layers;  // none is without_gradient
  // Bytes of buffers, such as running statistics, that a framework sends from rank 0 to all others
  // before each forward pass, to keep them equal.
  std::int64_t broadcast_bytes = 0;
  std::optional<MeasuredTimes> times;
};

// The tensors of a workload. The catalog's workloads have the ready order of LibTorch's autograd.
// It runs operations in the reverse order of forward, and delivers a parameter's gradient when its
// last use is done. Throws Error{kConfig} with the nearest known name. Cost: computed once, kept;
// may be called from any thread.
const LayerTable& LayersOf(std::string_view workload);

// [tensors] in ready order: backward takes times in these proportions, each since the gradient
// before. Multiply-accumulates, or microseconds of a table that has them; at least one is above 0.
// Throws as LayersOf.
std::vector<double> BackwardWeights(std::string_view workload);

}  // namespace sparfuse::workloads
