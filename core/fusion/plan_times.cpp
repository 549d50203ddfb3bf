#include "core/fusion/plan_times.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/payload/payload.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

void CheckReadyTensors(const ReadyTensors& tensors, std::string_view solver) {
  const std::string owner(solver);
  const std::size_t count = tensors.elements.size();
  SPARFUSE_REQUIRE(count > 0, owner,
                   ": elements is empty: expected the elements of at least one tensor");
  SPARFUSE_REQUIRE(tensors.backward_seconds.size() == count, owner, ": backward_seconds has ",
                   tensors.backward_seconds.size(), " numbers; expected one for each tensor, ",
                   count);
  for (std::size_t t = 0; t < count; ++t) {
    const std::string at = std::string("[") + std::to_string(t) + "]";
    SPARFUSE_REQUIRE(tensors.elements[t] > 0, owner, ": elements", at, " = 0: expected at least 1");
    RequireSeconds(solver, "backward_seconds" + at, tensors.backward_seconds[t]);
  }
}

void RequireSeconds(std::string_view solver, std::string_view key, double value) {
  SPARFUSE_REQUIRE(std::isfinite(value) && value >= 0, solver, ": ", key, " = ", ToString(value),
                   ": expected a finite number of at least 0");
}

namespace {

// `elements`: the number of elements that the exchange covers.
double SecondsOf(const CostModel& cost, const Collective& collective, std::size_t elements,
                 std::uint64_t bytes, const Topology& topology) {
  thread_local RoundPlan even;  // planners ask for millions of sizes, so the plan is reused
  even.rounds.clear();
  if (AddModelledEvenRounds(collective, bytes, topology, cost.all_gather, even)) {
    return cost.PhasesOf(even, collective, bytes).alone();
  }
  const ExchangeSizes sizes = ExpectedSizes(
      collective, {elements, bytes / kSparseElementBytes, 1},
      std::vector<std::uint64_t>(static_cast<std::size_t>(topology.ranks), bytes), {}, topology);
  const RoundPlan rounds = ModelledRounds(collective, sizes, topology, cost.all_gather);
  return cost.PhasesOf(rounds, collective, bytes).alone();
}

CostModel::Growth GrowthOf(const CostModel& cost, const Collective& collective,
                           const Topology& topology) {
  // A size at which all ranks have equally many elements.
  const std::uint64_t bytes =
      (std::uint64_t{1} << 20) * kSparseElementBytes * static_cast<std::uint64_t>(topology.ranks);
  RoundPlan plan;
  return AddModelledEvenRounds(collective, bytes, topology, cost.all_gather, plan)
             ? cost.GrowthOf(plan, collective, bytes)
             : CostModel::Growth{0, HUGE_VAL};
}

}  // namespace

PlanTimes::PlanTimes(const PlanInput& input, std::string_view planner) : input_(input) {
  const bool complete = input.backward != nullptr && input.cost != nullptr &&
                        input.dense_collective != nullptr && input.sparse_collective != nullptr;
  SPARFUSE_REQUIRE(complete, "planner \"", planner,
                   "\" plans with measured times: expected a profile");
  SPARFUSE_REQUIRE(input.backward->backward_seconds.size() == input.layout.tensors(), "planner \"",
                   planner, "\": the profile has ", input.backward->backward_seconds.size(),
                   " tensors; expected ", input.layout.tensors());
  host_seconds_ = input.cost->ExchangeHostSeconds(input.topology.ranks);
  host_seconds_per_element_ = input.cost->HostElementSeconds(1, input.topology.ranks);
}

double PlanTimes::Sparsify(std::size_t tensor, double density) const {
  const std::size_t n = input_.layout.tensor(tensor).numel;
  const double work = density < 1 ? input_.cost->SelectionSeconds(input_.sparsifier, n, density)
                                  : input_.cost->pack_seconds(static_cast<double>(n));
  return input_.cost->dispatch_seconds + work;
}

double PlanTimes::SparsifyOnHost(std::size_t tensor, double density) const {
  return input_.cost->dispatch_seconds +
         input_.cost->HostSelectionSeconds(input_.sparsifier, input_.layout.tensor(tensor).numel,
                                           density);
}

double PlanTimes::SparsifyFused(std::size_t elements, double density, Lane lane) const {
  const CostModel& cost = *input_.cost;
  const bool beside = lane == Lane::kSide && !cost.selects_in_hooks;
  const double work = density >= 1 ? cost.pack_seconds(static_cast<double>(elements))
                      : beside     ? cost.SideSelectionSeconds(input_.sparsifier, elements, density)
                                   : cost.SelectionSeconds(input_.sparsifier, elements, density);
  return cost.dispatch_seconds + (beside ? cost.side_slowdown : 1) * work;
}

double PlanTimes::Gather(std::uint64_t payload_bytes) const {
  const auto kept = static_cast<double>(payload_bytes / kSparseElementBytes);
  return SecondsOf(*input_.cost, *input_.sparse_collective,
                   static_cast<std::size_t>(kept / input_.density), payload_bytes, input_.topology);
}

double PlanTimes::Reduce(std::size_t elements) const {
  return SecondsOf(*input_.cost, *input_.dense_collective, elements, sizeof(float) * elements,
                   input_.topology);
}

double PlanTimes::HostSecondsPerExchange(std::size_t elements, std::uint64_t payload_bytes) const {
  const auto sent = static_cast<double>(payload_bytes);
  const double moved = payload_bytes > 0 && input_.cost->stages_payloads
                           ? CostModel::StagedElements(sent, input_.topology.ranks * sent)
                           : static_cast<double>(elements);
  const double summed = input_.sparse_collective->descriptor().sums_on_host ? sent : 0;
  return host_seconds_ + host_seconds_per_element_ * moved +
         input_.cost->HostSumSeconds(summed, input_.topology.ranks);
}

CostModel::Growth PlanTimes::GatherGrowth() const {
  return GrowthOf(*input_.cost, *input_.sparse_collective, input_.topology);
}

CostModel::Growth PlanTimes::ReduceGrowth() const {
  CostModel::Growth growth = GrowthOf(*input_.cost, *input_.dense_collective, input_.topology);
  // Ranks have whole elements each: sizes are rounded up to a multiple of the number of ranks.
  growth.fall += growth.seconds_per_byte * sizeof(float) * input_.topology.ranks;
  return growth;
}

double PlanTimes::Decompress(std::size_t elements, std::size_t entries) const {
  return input_.cost->DecompressSeconds(input_.sparsifier, elements, entries,
                                        input_.topology.ranks);
}

std::uint64_t PlannedPayloadBytes(const GradientLayout& layout, std::size_t tensor,
                                  double density) {
  return kSparseElementBytes * KeptCount(layout.tensor(tensor).numel, density);
}

MergedTimes::MergedTimes(const PlanInput& input, std::string_view planner)
    : input_(input), times_(input, planner) {
  for (std::size_t t = 0; t < input.layout.tensors(); ++t) {
    const TensorEntry& tensor = input.layout.tensor(t);
    const bool selected = input.sparsified == Sparsified::kAhead && !tensor.dense;
    elements_.push_back(tensor.numel);
    seconds_.push_back(times_.Backward(t) + times_.Sparsify(t, selected ? input.density : 1.0));
  }
}

double MergedTimes::Select(std::size_t elements, Lane lane) const {
  if (input_.sparsified != Sparsified::kBehind) return 0;
  return times_.SparsifyFused(elements, input_.density, lane);
}

double MergedTimes::Exchange(std::size_t elements) const {
  if (input_.sparsified == Sparsified::kNever)
    return times_.Reduce(elements) + times_.HostSecondsPerExchange(elements);
  const std::uint64_t bytes = kSparseElementBytes * KeptCount(elements, input_.density);
  return times_.Gather(bytes) + times_.HostSecondsPerExchange(elements, bytes);
}

Plan PlanOfLengths(std::span<const std::size_t> lengths, const PlanInput& input) {
  Plan plan;
  std::size_t first = 0;
  for (const std::size_t length : lengths) {
    plan.units.push_back({first, first + length, input.sparsified, input.unit_density()});
    first += length;
  }
  return plan;
}

std::vector<std::size_t> EqualLengths(std::size_t tensors, std::size_t each) {
  std::vector<std::size_t> lengths(tensors / each, each);
  if (tensors % each > 0) lengths.push_back(tensors % each);
  return lengths;
}

}  // namespace sparfuse
