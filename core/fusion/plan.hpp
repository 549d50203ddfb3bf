// Describes plans, which say which tensors travel together, and the planners that make them.
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

// Where local work runs. kCompute is the thread or stream of forward and backward: work requested
// while a gradient is announced delays backward, as a hook does. kSide overlaps with kCompute.
// kHost is the processor beside an accelerator, or another thread if there is no accelerator.
enum class Lane : std::uint8_t { kCompute, kSide, kHost };
inline constexpr std::size_t kLanes = 3;
std::string_view LaneName(Lane lane);

// Where a unit is sparsified: not at all, before fusing (tensor by tensor, "ahead"), or after
// fusing (the whole unit, "behind").
enum class Sparsified : std::uint8_t { kNever, kAhead, kBehind };

// A run [first, last) of tensors in ready order that travels as one. All tensors of a unit share
// its lane, partitions and path; tensors that should differ in them need units of their own.
struct Unit {
  std::size_t first = 0;
  std::size_t last = 0;
  Sparsified sparsified = Sparsified::kNever;
  double density = 1.0;
  Lane lane = Lane::kCompute;  // behind: the lane of its selection, kCompute or kSide
  // Behind, for strategies that give parts of a unit to ranks that sum them: the number of parts.
  std::uint16_t partitions = 1;
  // For strategies that know several ways to send a unit: the strategy's own number of the way.
  std::uint8_t path = 0;
  // For strategies with local steps: the unit's fragment, which says when the unit is sent.
  std::uint16_t date = 0;
  bool operator==(const Unit&) const = default;
};

// How one tensor of a sparsified unit travels.
struct TensorPlan {
  double density = 1.0;    // 1: all elements
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
  // How a tensor of the layout travels. A tensor that the experiment keeps dense has density 1.
  TensorPlan TensorOf(const GradientLayout& layout, std::size_t tensor) const;
  // The number of tensors of each unit, "3,8,66,85": the form of golden plans.
  std::string UnitSizes() const;
};

// Throws Error{kInternal} unless:
// * the units cover every tensor of the layout once, in order, and none is empty;
// * `tensors` is empty or has an entry for every tensor;
// * densities are in (0, 1], and only tensors of density 1 are reduced;
// * a unit that is sparsified behind reduces exactly the dense tensors that the layout has apart;
// * a unit that is not sparsified has density 1 for each tensor, none reduced, none offloaded;
// * no unit is on kHost, and only units that are sparsified behind are on kSide or have partitions.
void CheckPlan(const Plan& plan, const GradientLayout& layout);

// The same units, none sparsified: each is all-reduced whole.
Plan DensePlan(const Plan& plan);

// The inputs of a planner. Times were reduced over ranks or come from rank 0, so that every rank
// makes the same plan; ranks that disagree on a boundary would deadlock.
struct PlanInput {
  const GradientLayout& layout;
  Topology topology;
  double density = 1.0;                        // 1: nothing is sparsified
  Sparsified sparsified = Sparsified::kNever;  // the method's choice for its units
  const BackwardProfile* backward = nullptr;   // null if none was measured
  const CostModel* cost = nullptr;             // null if none was measured
  std::string_view sparsifier = {};            // key of cost->selection; empty: none
  const Collective* dense_collective = nullptr;
  const Collective* sparse_collective = nullptr;

  // Of the elements of a unit that is planned as the method chose.
  double unit_density() const { return sparsified == Sparsified::kNever ? 1.0 : density; }
};

class Planner {
 public:
  virtual ~Planner() = default;
  // Pure. Units cover the layout once, in ready order.
  virtual Plan MakePlan(const PlanInput& input) const = 0;
};

// The planner whose plans a pure function makes.
std::unique_ptr<Planner> PlannerBy(std::function<Plan(const PlanInput&)> make_plan);

struct PlannerDescriptor {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  int revision;
  std::vector<OptionSpec> options = {};
  std::function<std::unique_ptr<Planner>(const Options& resolved)> make;
  // Whether, with these options, the planner reads backward and cost, which must then be present;
  // null: it never does.
  bool (*needs_profile)(const Options& resolved) = nullptr;
  bool ahead_only = false;  // plans tensor by tensor: for strategies that sparsify ahead
  std::string_view deviations = {};
  // The strategy whose paths it plans; empty: it plans for any.
  std::string_view strategy = {};
  // Whether every tensor that is not dense gets the input's density: what a step selects follows
  // from that alone. Others send some tensors whole.
  bool keeps_density = false;
};

// The planners that no paper owns: layer-wise, by bytes, by count, whole model, fusion degree,
// given, fragments.
std::span<const PlannerDescriptor> CorePlanners();

// Plans units of given sizes, for systems whose plan is known.
inline constexpr std::string_view kGivenPlanner = "given";

// MakePlan throws Error{kConfig} naming the option, its value and the expected value if a size is
// no positive integer, if the sizes do not add up to the layout's tensors or bytes, or if a unit
// given in bytes ends within a tensor.
PlannerDescriptor GivenPlanner();

// Cuts the tensors into runs of about equal size, dealt in turn to fragments with dates of their
// own. MakePlan throws Error{kConfig} if there are fewer tensors than fragments, or if given runs
// do not cover the layout.
inline constexpr std::string_view kFragmentsPlanner = "fragments";
PlannerDescriptor FragmentsPlanner();

}  // namespace sparfuse
