// Plans as SSFusion does: decides which tensors of a unit stay dense, which are selected on the
// host, and which dense tensors are reduced instead of gathered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse {

// A tensor of a unit, as offloading sees it. Times are in seconds.
struct OffloadTensor {
  bool dense = false;
  double backward_seconds = 0;
  double sparsify_seconds = 0;  // on the compute lane; of a dense tensor its copy into the payload
  double host_sparsify_seconds = 0;
};

// [tensors of the unit] whether a tensor is selected on the host: if the host is idle when the
// tensor's gradient is ready. The last tensor is not selected there if the host would end after the
// compute lane and so delay the unit.
std::vector<bool> OffloadedTensors(std::span<const OffloadTensor> unit);

// A tensor of a unit, as interleaving sees it.
struct PartitionTensor {
  bool dense = false;
  std::size_t elements = 0;
  std::uint64_t payload_bytes = 0;  // its bytes in the payload if it is not reduced
};

// The p in [-1, tensors of the unit) for which the all-reduce of the dense tensors up to position p
// and the all-gather of all other tensors together take the least time. Of equal p the smallest is
// taken, so -1 if the unit has no dense tensor. Both functions return seconds and are called with
// sizes above 0 only.
std::ptrdiff_t PartitionPoint(std::span<const PartitionTensor> unit,
                              const std::function<double(std::size_t elements)>& reduce,
                              const std::function<double(std::uint64_t bytes)>& gather);

extern const PlannerDescriptor kSsfusionPlanner;

}  // namespace sparfuse
