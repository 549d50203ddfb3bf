// Describes plans, which say what tensors travel together, and the planners that make them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/fusion/layout.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

class Collective;        // core/collective/collective.hpp
struct CostModel;        // core/cost/cost_model.hpp
struct BackwardProfile;  // core/cost/cost_model.hpp

// Where local work runs. kCompute is the thread or stream of forward and backward: work asked for
// while a gradient is announced delays backward, as a hook does. kSide overlaps with it; kHost is a
// processor beside an accelerator, on a machine without one another thread.
enum class Lane : std::uint8_t { kCompute, kSide, kHost };
inline constexpr std::size_t kLanes = 3;
std::string_view LaneName(Lane lane);

// Where a unit is sparsified: not at all, before fusing (tensor by tensor, "ahead"), or after
// fusing (the whole unit, "behind").
enum class Sparsified : std::uint8_t { kNever, kAhead, kBehind };

// A run [first, last) of tensors in ready order that travels as one. Lane, partitions and path are
// the unit's: tensors that should differ in them are units of their own.
struct Unit {
  std::size_t first = 0;
  std::size_t last = 0;
  Sparsified sparsified = Sparsified::kNever;
  double density = 1.0;
  Lane lane = Lane::kCompute;  // behind: where it is selected from, there or on kSide
  // Behind, of strategies that give parts of it to ranks that sum them: how many.
  std::uint16_t partitions = 1;
  // Of strategies that know several ways to send a unit: which, by the strategy's own numbers.
  std::uint8_t path = 0;
  bool operator==(const Unit&) const = default;
};

// How one tensor of a unit that is sparsified travels.
struct TensorPlan {
  double density = 1.0;    // 1: all of it
  bool offloaded = false;  // selected on the host lane
  bool reduced = false;    // dense, in its unit's all-reduce instead of in the payload
  bool operator==(const TensorPlan&) const = default;
};

struct Plan {
  std::vector<Unit> units;
  std::vector<TensorPlan> tensors = {};  // [tensors], or empty: each as its unit says
  bool operator==(const Plan&) const = default;

  // Equal plans give equal hashes on every machine; ranks compare it before the first step.
  std::uint64_t Hash() const;
  // How a tensor of the layout travels; one that the experiment keeps dense has density 1.
  TensorPlan TensorOf(const GradientLayout& layout, std::size_t tensor) const;
  // The number of tensors of each unit, "3,8,66,85": the form of golden plans.
  std::string UnitSizes() const;
  // [tensors] the unit that holds each tensor.
  std::vector<std::size_t> UnitOfTensors() const;
};

// Throws Error{kInternal} unless the units cover every tensor of the layout once, in order, none
// empty, and what is said of tensors is said of all, reduces dense ones only, and only in units
// that are sparsified ahead, behind where the layout has them apart, or, all of them dense, not at
// all. Only units that are sparsified behind may have a lane beside that of backward, the side
// lane.
void CheckPlan(const Plan& plan, const GradientLayout& layout);

// The same units, none of them sparsified: all-reduced whole.
Plan DensePlan(const Plan& plan);

// What a planner may look at. Times in it were reduced over ranks or come from rank 0, so that
// equal inputs give equal plans on every rank; ranks that disagree on a boundary would deadlock.
struct PlanInput {
  const GradientLayout& layout;
  Topology topology;
  double density = 1.0;                        // 1: nothing is sparsified
  Sparsified sparsified = Sparsified::kNever;  // the method's choice for its units
  const BackwardProfile* backward = nullptr;   // null where none was measured
  const CostModel* cost = nullptr;             // null where none was measured
  std::string_view sparsifier = {};            // key of cost->selection; empty: none
  const Collective* dense_collective = nullptr;
  const Collective* sparse_collective = nullptr;
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const noexcept = 0;
  // Pure. Units cover the layout once, in ready order.
  virtual Plan MakePlan(const PlanInput& input) const = 0;
};

struct PlannerDescriptor {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  int revision;
  std::vector<OptionSpec> options;
  std::function<std::unique_ptr<Planner>(const Options& resolved)> make;
  // With these options it looks at backward and cost, which must then be there; null: it never
  // does.
  bool (*needs_profile)(const Options& resolved) = nullptr;
  bool ahead_only = false;  // plans tensor by tensor: for strategies that sparsify ahead
  std::string_view deviations = {};
  // The strategy whose paths it plans; empty: it plans for any.
  std::string_view strategy = {};
};

// The planners that no paper owns: layer-wise, by bytes, by count, whole model, fusion degree,
// given.
std::span<const PlannerDescriptor> CorePlanners();

// Plans units of given sizes, for systems whose plan is known.
inline constexpr std::string_view kGivenPlanner = "given";

// MakePlan throws Error{kConfig} naming option, value and what was expected where the sizes are no
// positive integers, do not add up to the layout's tensors or bytes, or a unit of so many bytes
// ends within a tensor.
PlannerDescriptor GivenPlanner();

}  // namespace sparfuse
