#include "harness/python/configured_method.hpp"

#include <pybind11/stl.h>

#include <set>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/base/outside_parts.hpp"
#include "core/cost/cost_model.hpp"
#include "harness/python/arrays.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

constexpr double kBackwardSecondsPerElement = 1e-9;  // a declared default, as for the link

template <class T>
T Value(const py::dict& file, const char* key, T fallback) {
  return file.contains(key) ? file[key].cast<T>() : fallback;
}

std::string CollectiveOf(const MethodSettings& given) {
  const std::string owner = "method " + given.name;
  const py::dict one("collective"_a = given.options["collective"]);
  const OptionValue value = ToOptions(owner, one).at("collective");
  const auto* name = std::get_if<std::string>(&value);
  SPARFUSE_REQUIRE(name != nullptr,
                   owner + ": collective = " + ToString(value) + ": expected a string");
  return *name;
}

// Passes each option of the method's file and of the caller to the part that takes it.
void SortOptions(const MethodSettings& given, MethodParts& parts) {
  const bool other = given.options.contains("collective");
  if (other) parts.collective = CollectiveOf(given);
  const MethodOptions takes{FindStrategy(parts.strategy).options,
                            FindPlanner(parts.planner).options,
                            FindCollective(parts.collective).options, SendingOptions()};
  const std::string owner = "method " + given.name;
  parts.strategy_options = ToOptions(owner, Value(given.file, "strategy_options", py::dict()));
  parts.planner_options = ToOptions(owner, Value(given.file, "planner_options", py::dict()));
  if (!other) {
    parts.collective_options =
        ToOptions(owner, Value(given.file, "collective_options", py::dict()));
  }
  for (const OptionSpec& option : SendingOptions()) {
    if (!given.file.contains(option.name.c_str())) continue;
    py::dict one;
    one[option.name.c_str()] = given.file[option.name.c_str()];
    parts.sending.merge(ToOptions(owner, one));
  }
  std::vector<std::string> known = takes.Names();
  known.emplace_back("collective");
  known.insert(known.end(), given.keywords.begin(), given.keywords.end());
  RequireKnown(owner, given.options, known);
  if (given.options.contains("replan_every")) {
    SPARFUSE_THROW(kConfig, owner +
                                ": replan_every: gradients come without the times of a backward "
                                "pass; expected backward_seconds once");
  }
  for (const auto& [key, value] : ToOptions(owner, given.options)) {
    using enum MethodOptions::Owner;
    if (key == "collective") continue;
    const auto whose = takes.OwnerOf(key, given.name);
    (*whose == kSending      ? parts.sending
     : *whose == kStrategy   ? parts.strategy_options
     : *whose == kCollective ? parts.collective_options
                             : parts.planner_options)[key] = value;
  }
}

TensorShape ReadTensor(const std::string& name, const py::object& extents) {
  TensorShape tensor{name, {}, 0};
  try {
    tensor.shape = ReadShape(extents);
    tensor.numel = ElementCount(tensor.shape);
  } catch (const Error& error) {
    throw Error(error.kind(), "layout: \"" + name + "\": " + error.what());
  }
  SPARFUSE_REQUIRE(tensor.numel >= 1, "layout: \"" + name + "\" has shape " +
                                          ShapeText(tensor.shape) +
                                          "; expected at least one element");
  SPARFUSE_REQUIRE(tensor.numel < (std::uint64_t{1} << 32),
                   "layout: \"" + name + "\" has " + std::to_string(tensor.numel) +
                       " elements; indices are 32 bits, expected below 2^32");
  return tensor;
}

}  // namespace

std::vector<TensorShape> ReadTensors(std::span<const std::pair<std::string, py::object>> layout) {
  SPARFUSE_REQUIRE(!layout.empty(), "layout is empty: expected (name, shape) of a tensor");
  SPARFUSE_REQUIRE(layout.size() <= kMostTensors, "layout has " + std::to_string(layout.size()) +
                                                      " tensors: expected at most " +
                                                      std::to_string(kMostTensors));
  std::vector<TensorShape> tensors;
  std::set<std::string> names;
  for (const auto& [name, extents] : layout) {
    tensors.push_back(ReadTensor(name, extents));
    SPARFUSE_REQUIRE(names.insert(name).second,
                     "layout has \"" + name +
                         "\" twice; expected a tied weight once, where its gradient is final");
  }
  return tensors;
}

std::vector<PartMemory> MemoriesOf(const LiveConfig& config) {
  std::vector<PartMemory> memories;
  const auto add = [&](const auto* part) {
    if (const auto* const own = dynamic_cast<const HasMemory*>(part))
      memories.push_back(own->Memory());
  };
  add(config.sparsifier.get());
  add(config.strategy.get());
  add(config.feedback.rule.get());
  add(config.dense_quantizer.get());
  add(config.sparse_collective.get());
  if (config.dense_collective != config.sparse_collective) add(config.dense_collective.get());
  return memories;
}

ConfiguredMethod::ConfiguredMethod(const MethodSettings& settings)
    : composition_(ComposeOf(settings)),
      topology_{settings.world_size, settings.ranks_per_node},
      seed_(settings.seed),
      layout_(ReadLayout(settings)),
      cost_(CostOf(settings)),
      plan_(PlanOf(settings)) {}

std::optional<std::size_t> ConfiguredMethod::PositionOf(const std::string& tensor) const {
  const auto found = positions_.find(tensor);
  if (found == positions_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> ConfiguredMethod::TensorNames() const {
  std::vector<std::string> names(positions_.size());
  for (const auto& [name, position] : positions_) names[position] = name;
  return names;
}

LiveConfig ConfiguredMethod::MakeConfig() const {
  const bool dense = composition_.dense_warmup_steps > 0;
  return MakeLiveConfig(composition_, layout_, dense ? DensePlan(plan_) : plan_, topology_, seed_);
}

Composition ConfiguredMethod::ComposeOf(const MethodSettings& given) {
  SPARFUSE_REQUIRE(given.world_size % given.ranks_per_node == 0,
                   "ranks_per_node = " + std::to_string(given.ranks_per_node) +
                       ": expected a divisor of world_size = " + std::to_string(given.world_size));
  MethodParts parts;
  parts.strategy = given.file["strategy"].cast<std::string>();
  parts.planner = given.file["planner"].cast<std::string>();
  parts.collective = given.file["collective"].cast<std::string>();
  SortOptions(given, parts);
  const auto own = given.file["sparsifier"].cast<std::string>();
  if (own != "none") {
    SPARFUSE_REQUIRE(given.sparsifier == own || !Value(given.file, "sparsifier_fixed", false),
                     "sparsifier = \"" + given.sparsifier + "\": method " + given.name +
                         " is defined with \"" + own + "\" only");
    parts.density = CheckedDensity(given.density);
    ChooseSparsifier(given, parts);
  }
  if (FindStrategy(parts.strategy).sparsified != Sparsified::kNever) {
    parts.feedback = given.feedback;
    parts.feedback_options = ToOptions("feedback " + given.feedback, given.feedback_options);
  }
  Composition composition = Compose(parts);
  CheckTopology(composition, {given.world_size, given.ranks_per_node});
  if (const auto steps = composition.local_steps(); steps && steps->inner != InnerState::kKeep) {
    SPARFUSE_THROW(kConfig, "method " + given.name + ": inner_state = " +
                                ToString(composition.strategy_options.at("inner_state")) +
                                ": a method sees parameters, not your optimizer's state; expected "
                                "\"keep\", or sparfuse.torch.local_steps, which sees both");
  }
  if (composition.dense_collective->descriptor().native ||
      composition.sparse_collective->descriptor().native) {
    SPARFUSE_THROW(kUnsupported, "the collective \"" + parts.collective +
                                     "\" belongs to MPI or NCCL, but ranks here are threads");
  }
  return composition;
}

void ConfiguredMethod::ChooseSparsifier(const MethodSettings& given, MethodParts& parts) {
  const auto make = [name = given.sparsifier, density = given.density, seed = given.seed,
                     options = given.sparsifier_options] {
    return ConfigureSparsifier(name, density, seed, options);
  };
  const auto first = make();
  sparsifier_options_ = first->options;
  if (first->descriptor["language"].cast<std::string>() == "C++") {
    parts.sparsifier = &FindSparsifier(given.sparsifier);
    parts.sparsifier_options = ToOptions("sparsifier", first->options);
    return;
  }
  sparsifier_name_ = given.sparsifier;
  python_sparsifier_.name = sparsifier_name_;
  python_sparsifier_.unbounded_count = first->unbounded_count;
  python_sparsifier_.make = [make](const Options&, std::uint64_t) {
    return std::move(make()->sparsifier);  // each rank gets its own object of a class
  };
  parts.sparsifier = &python_sparsifier_;
}

GradientLayout ConfiguredMethod::ReadLayout(const MethodSettings& given) {
  const std::vector<TensorShape> tensors = ReadTensors(given.layout);
  for (const TensorShape& tensor : tensors) positions_.emplace(tensor.name, positions_.size());
  TensorChoice choice = given.choice;
  choice.dense_apart = composition_.strategy->sparsified == Sparsified::kBehind;
  return MakeLayout(tensors, choice, "the layout");
}

ModelConfig ConfiguredMethod::MakeModel(BackwardProfile backward, CostModel cost) const {
  return MakeModelConfig(composition_, layout_, topology_, std::move(backward), std::move(cost),
                         seed_);
}

CostModel ConfiguredMethod::CostOf(const MethodSettings& given) const {
  // The limits are those of experiment files.
  SPARFUSE_REQUIRE(
      given.gbps >= 0.001 && given.gbps <= 1e5,
      "link: gbps = " + std::to_string(given.gbps) + ": expected a number from 0.001 to 100000");
  SPARFUSE_REQUIRE(given.alpha_us >= 0 && given.alpha_us <= 1e6,
                   "link: alpha_us = " + std::to_string(given.alpha_us) +
                       ": expected a number from 0 to 1000000");
  CostModel cost = DeclaredCost(given.gbps, 1e-6 * given.alpha_us, sparsifier_name_);
  const std::string& quantizer = StringOption(composition_.sending, "payload_dense");
  if (IsOutsidePart(quantizer)) cost.encode_seconds[quantizer] = cost.pack_seconds;
  return cost;
}

Plan ConfiguredMethod::PlanOf(const MethodSettings& given) const {
  BackwardProfile backward;
  if (given.backward_seconds) {
    SPARFUSE_REQUIRE(given.backward_seconds->size() == layout_.tensors(),
                     "backward_seconds has " + std::to_string(given.backward_seconds->size()) +
                         " numbers; expected one for each tensor, " +
                         std::to_string(layout_.tensors()));
    for (const double seconds : *given.backward_seconds) {
      SPARFUSE_REQUIRE(seconds >= 0, "backward_seconds has " + std::to_string(seconds) +
                                         ": expected numbers of at least 0");
    }
    backward.backward_seconds = *given.backward_seconds;
  } else {
    for (std::size_t t = 0; t < layout_.tensors(); ++t) {
      backward.backward_seconds.push_back(kBackwardSecondsPerElement *
                                          static_cast<double>(layout_.tensor(t).numel));
    }
  }
  return MakePlan(composition_, layout_, topology_, &backward, &cost_);
}

}  // namespace sparfuse::python
