// Describes the inputs of published planners (sizes and times of backward, in ready order) and
// computes the times of tensors and of merged tensors.
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

// Seconds of one operation on `elements` elements at once, at least 1. Pure.
using SecondsOfElements = std::function<double(std::size_t elements)>;

// Throws Error{kConfig} naming `solver`, key and value if there is no tensor, if one has no
// elements, if there are not as many times as tensors, or if a time is not finite or below 0.
void CheckReadyTensors(const ReadyTensors& tensors, std::string_view solver);

// Throws Error{kConfig} naming `solver`, `key` and the value unless it is finite and at least 0.
void RequireSeconds(std::string_view solver, std::string_view key, double value);

// Seconds of the parts of a step on one rank, from the profile of a PlanInput. In an exchange,
// every rank contributes equally much; its time runs from its request to its end.
class PlanTimes {
 public:
  // Keeps a reference to `input`. Throws Error{kConfig} naming `planner` when a part of the profile
  // is missing.
  PlanTimes(const PlanInput& input, std::string_view planner);

  // Backward of one tensor, since the previous gradient was ready.
  double Backward(std::size_t tensor) const { return input_.backward->backward_seconds[tensor]; }
  // Selection from one tensor at this density, error feedback and dispatch included; at density 1
  // its copy into the payload.
  double Sparsify(std::size_t tensor, double density) const;
  // The same on the host lane.
  double SparsifyOnHost(std::size_t tensor, double density) const;
  // Selection from this many fused elements on the compute or the side lane; else as Sparsify.
  double SparsifyFused(std::size_t elements, double density, Lane lane) const;
  // All-gather of payloads of this many bytes a rank.
  double Gather(std::uint64_t payload_bytes) const;
  // All-reduce of this many elements.
  double Reduce(std::size_t elements) const;
  // Host time of an exchange of this many elements, however they are sent: add it to Gather or
  // Reduce when absolute times matter. payload_bytes: of each rank, if the exchange gathers. Linear
  // in the elements, or in the bytes if the host moves payloads.
  double HostSecondsPerExchange(std::size_t elements, std::uint64_t payload_bytes = 0) const;
  // An exchange of b bytes more takes at least seconds_per_byte * b - fall longer. b counts the
  // bytes of a payload for Gather, and of the elements for Reduce. fall: infinity if not known.
  CostModel::Growth GatherGrowth() const;
  CostModel::Growth ReduceGrowth() const;
  // Decompression of `entries` received from all ranks into `elements`.
  double Decompress(std::size_t elements, std::size_t entries) const;

 private:
  const PlanInput& input_;
  double host_seconds_ = 0;              // of each exchange
  double host_seconds_per_element_ = 0;  // planners ask for millions of exchanges
};

// Bytes of a tensor in a payload: kSparseElementBytes for each element to be kept.
std::uint64_t PlannedPayloadBytes(const GradientLayout& layout, std::size_t tensor, double density);

// Times of a PlanInput for units of any run of tensors, for planners whose costs depend only on the
// number of merged elements.
class MergedTimes {
 public:
  // Keeps a reference to `input`. Throws as PlanTimes.
  MergedTimes(const PlanInput& input, std::string_view planner);

  // Views of this object. A tensor's backward includes its work on the compute lane before merging:
  // the copy into the fused buffer, or the selection if it comes ahead.
  ReadyTensors tensors() const { return {elements_, seconds_}; }
  // Selection from this many merged elements on the compute or the side lane, dispatch included; 0
  // unless the strategy sparsifies behind.
  double Select(std::size_t elements, Lane lane = Lane::kCompute) const;
  // The exchange of a unit of this many elements: all-reduce, or all-gather of its kept elements.
  double Exchange(std::size_t elements) const;

 private:
  const PlanInput& input_;
  PlanTimes times_;
  std::vector<std::size_t> elements_;  // [tensors]
  std::vector<double> seconds_;        // [tensors]
};

// The plan with lengths[u] tensors in unit u, sparsified as the method does it.
// Precondition: the lengths add up to the tensors of the layout.
Plan PlanOfLengths(std::span<const std::size_t> lengths, const PlanInput& input);
// The lengths of units of `each` tensors, at least 1; the last has the rest.
std::vector<std::size_t> EqualLengths(std::size_t tensors, std::size_t each);

}  // namespace sparfuse
