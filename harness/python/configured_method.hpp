// Composes a method from the arguments of the constructor of Method in Python, and reads layouts.
// The caller holds the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "baselines/composition.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/parts/memory.hpp"

namespace sparfuse::python {

// Names and shapes as tensors, in the given order. Throws Error{kConfig} naming the tensor if a
// name comes twice, or if a shape has negative extents, no elements, or 2^32 and more; also if
// there is no tensor. Throws TypeError if a shape is not one.
std::vector<TensorShape> ReadTensors(
    std::span<const std::pair<std::string, pybind11::object>> layout);

// The memory of each part of a rank's method that is written in Python. The caller holds the GIL.
// config: as ConfiguredMethod::MakeConfig made it.
std::vector<PartMemory> MemoriesOf(const LiveConfig& config);

// The settings as given; nothing is checked yet.
struct MethodSettings {
  std::string name;
  pybind11::dict file;                // the method as its NAME.toml has it
  pybind11::dict options;             // of its strategy, planner and payload
  std::vector<std::string> keywords;  // that Method takes besides
  int world_size;                     // 1 to kMostRanks
  int ranks_per_node;                 // at least 1
  std::vector<std::pair<std::string, pybind11::object>> layout;  // names, shapes; in ready order
  double density;
  std::string sparsifier;
  pybind11::dict sparsifier_options;
  std::string feedback;
  pybind11::dict feedback_options;
  TensorChoice choice;
  std::uint64_t seed;
  double gbps;                                          // the link that planners go by
  double alpha_us;                                      // its start-up time
  std::optional<std::vector<double>> backward_seconds;  // [tensors]; by default declared, too
};

// Reads the arguments that sparfuse.Method passes to _core. Dicts and the layout are the package's
// own. Throws TypeError and Error{kConfig} for the rest.
MethodSettings ReadSettings(const pybind11::kwargs& given);

// The method. If it sends dense gradients, it has no sparsifier, no feedback and density 1, for any
// settings.
class ConfiguredMethod {
 public:
  // Throws Error{kConfig} and TypeError naming the mistake; Error{kUnsupported} for a collective
  // that does not work between threads.
  explicit ConfiguredMethod(const MethodSettings& settings);
  ConfiguredMethod(const ConfiguredMethod&) = delete;
  ConfiguredMethod& operator=(const ConfiguredMethod&) = delete;

  const Composition& composition() const { return composition_; }
  // The plan of the steps after the dense ones.
  const Plan& plan() const { return plan_; }
  // The options of the sparsifier, defaults included.
  pybind11::dict sparsifier_options() const { return sparsifier_options_; }
  // The position in ready order; nothing if there is no such tensor.
  std::optional<std::size_t> PositionOf(const std::string& tensor) const;
  std::vector<std::string> TensorNames() const;
  // A rank's. It must not outlive this object, whose parts it uses.
  LiveConfig MakeConfig() const;
  // A modelled step of these times, planned with them. `cost` has a curve for everything local.
  ModelConfig MakeModel(BackwardProfile backward, CostModel cost) const;
  // The costs with which plans of live ranks are made: the declared link, and 1 us and 1 ns an
  // element of local work.
  const CostModel& declared_cost() const { return cost_; }

 private:
  Composition ComposeOf(const MethodSettings& settings);
  void ChooseSparsifier(const MethodSettings& settings, MethodParts& parts);
  GradientLayout ReadLayout(const MethodSettings& settings);
  CostModel CostOf(const MethodSettings& settings) const;
  Plan PlanOf(const MethodSettings& settings) const;

  pybind11::dict sparsifier_options_;
  std::string sparsifier_name_;  // of one that is written in Python
  SparsifierDescriptor python_sparsifier_;
  std::map<std::string, std::size_t> positions_;
  Composition composition_;
  Topology topology_;
  std::uint64_t seed_;
  GradientLayout layout_;
  CostModel cost_;
  Plan plan_;
};

}  // namespace sparfuse::python
