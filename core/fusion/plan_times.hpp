// Describes what published planners weigh against one another (sizes and times of backward, in
// ready order) and computes the times of tensors and of merged ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

struct ReadyTensors {
  std::span<const std::size_t> elements;     // [tensors] at least 1
  std::span<const double> backward_seconds;  // [tensors] since the previous gradient was ready
};

// Seconds that one operation takes on so many elements at once, at least 1. Pure.
using SecondsOfElements = std::function<double(std::size_t elements)>;

// Throws Error{kConfig} naming `solver`, key and value where there is no tensor, one has no
// elements, there are not as many times as tensors, or a time is no finite number of at least 0.
void CheckReadyTensors(const ReadyTensors& tensors, std::string_view solver);

// Throws Error{kConfig} naming `solver`, `key` and the value unless it is finite and at least 0.
void RequireSeconds(std::string_view solver, std::string_view key, double value);

// Seconds of the parts of a step, from the profile of a PlanInput. All are those of one rank; an
// exchange is one in which every rank contributes as much, from its request to its end.
class PlanTimes {
 public:
  // Keeps a reference to `input`. Throws Error{kConfig} naming `planner` when a part of the profile
  // is missing.
  PlanTimes(const PlanInput& input, std::string_view planner);

  // Backward of one tensor: since the previous gradient was ready.
  double Backward(std::size_t tensor) const;
  // Selection from one tensor at this density, error feedback and dispatch included; at density 1
  // its copy into the payload.
  double Sparsify(std::size_t tensor, double density) const;
  // The same on the host lane.
  double SparsifyOnHost(std::size_t tensor, double density) const;
  // Selection from so many elements together on the compute or the side lane; else as Sparsify.
  double SparsifyFused(std::size_t elements, double density, Lane lane) const;
  // All-gather of payloads of this many bytes a rank.
  double Gather(std::uint64_t payload_bytes) const;
  // All-reduce of this many elements.
  double Reduce(std::size_t elements) const;
  // Host time of an exchange of so many elements, independent of how they are sent: add it to
  // Gather or Reduce when absolute times matter. payload_bytes: of each rank, where it gathers.
  double HostSecondsPerExchange(std::size_t elements, std::uint64_t payload_bytes = 0) const;
  // An exchange of b bytes more takes at least seconds_per_byte * b - fall longer; of Gather by the
  // bytes of its payload, of Reduce by those of its elements. fall: infinity where that is not
  // known.
  CostModel::Growth GatherGrowth() const;
  CostModel::Growth ReduceGrowth() const;
  // Decompression of `entries` received from all ranks into `elements`.
  double Decompress(std::size_t elements, std::size_t entries) const;

 private:
  const PlanInput& input_;
};

// Bytes of a tensor in a payload: kSparseElementBytes for each element that it is to keep.
std::uint64_t PlannedPayloadBytes(const GradientLayout& layout, std::size_t tensor, double density);

// Computes what merged tensors take, for planners whose costs depend on nothing but how many
// elements they merge.

// Times of a PlanInput for units of any run of tensors.
class MergedTimes {
 public:
  // Keeps a reference to `input`. Throws as PlanTimes.
  MergedTimes(const PlanInput& input, std::string_view planner);

  // Views of this object. What each tensor takes of the compute lane before it is merged counts as
  // its backward: the copy into the fused buffer, or the selection where that comes ahead.
  ReadyTensors tensors() const { return {elements_, seconds_}; }
  // Selection from so many merged elements on this lane, the compute or the side lane, dispatch
  // included; 0 unless the strategy sparsifies behind.
  double Select(std::size_t elements, Lane lane = Lane::kCompute) const;
  // The exchange of a unit of so many elements: all-reduce, or all-gather of what is kept of them.
  double Exchange(std::size_t elements) const;

 private:
  const PlanInput& input_;
  PlanTimes times_;
  std::vector<std::size_t> elements_;  // [tensors]
  std::vector<double> seconds_;        // [tensors]
};

// The plan with so many tensors in each unit, sparsified as the method does it.
// Precondition: they add up to the tensors of the layout.
Plan PlanOfLengths(std::span<const std::size_t> lengths, const PlanInput& input);

}  // namespace sparfuse
