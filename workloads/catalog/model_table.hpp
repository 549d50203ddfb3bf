// Describes a model by the list of its tensors in a user's file, instead of by code that builds it.
// That is enough to model its training, and not enough to train it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/models/layers.hpp"

namespace sparfuse::workloads {

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

struct ModelTable {
  std::string family = kTableFamily;
  LayerTable layers;  // none is without_gradient
  // Bytes of buffers, such as running statistics, that a framework sends from rank 0 to all others
  // before each forward pass, to keep them equal.
  std::int64_t broadcast_bytes = 0;
  std::optional<MeasuredTimes> times;
};

}  // namespace sparfuse::workloads
