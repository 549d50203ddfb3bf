// Plans as SSFusion does: which tensors of a unit are left dense, which are selected on the host,
// and which of the dense ones are reduced instead of gathered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse {

// A tensor of a unit, as offloading looks at it. Seconds.
struct OffloadTensor {
  bool dense = false;
  double backward_seconds = 0;
  double sparsify_seconds = 0;  // on the compute lane; of a dense tensor its copy into the payload
  double host_sparsify_seconds = 0;
};

// [tensors of the unit] whether it is selected on the host: a tensor is where the host is idle when
// its gradient is ready. The last one is not where the host would end after the compute lane, since
// it would then delay the unit.
std::vector<bool> OffloadedTensors(std::span<const OffloadTensor> unit);

// A tensor of a unit, as interleaving looks at it.
struct PartitionTensor {
  bool dense = false;
  std::size_t elements = 0;
  std::uint64_t payload_bytes = 0;  // what it takes of the payload when it is not reduced
};

// The p in [-1, tensors of the unit) for which the all-reduce of the dense tensors up to position p
// and the all-gather of everything else take least together; the smallest of equal ones, so -1
// where the unit has no dense tensor. Both functions give seconds; neither is asked about nothing.
std::ptrdiff_t PartitionPoint(std::span<const PartitionTensor> unit,
                              const std::function<double(std::size_t elements)>& reduce,
                              const std::function<double(std::uint64_t bytes)>& gather);

extern const PlannerDescriptor kSsfusionPlanner;

}  // namespace sparfuse
