// Binds one modelled step of a method for sparfuse/torch, which gives advice before training.
#include <pybind11/stl.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/base/python_imports.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/feedback/feedback.hpp"
#include "harness/python/configured_method.hpp"
#include "harness/python/gil.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

using Points = std::vector<std::pair<double, double>>;

// selection: seconds of a selection by number of elements; if it is empty, declared_cost is used.
py::dict ModelOneStep(double forward_seconds, const Points& selection, const py::kwargs& settings) {
  const MethodSettings given = ReadSettings(settings);
  SPARFUSE_REQUIRE(given.backward_seconds.has_value(),
                   "backward_seconds is None; expected the seconds of each tensor");
  const ConfiguredMethod method(given);
  SPARFUSE_REQUIRE(!method.composition().local_steps(),
                   "the method exchanges parameters once in a window of steps, but a single step "
                   "is modelled; expected a method that exchanges gradients in every step");
  SPARFUSE_REQUIRE(!method.composition().strategy->delays,
                   "the method's exchanges continue during the next step, but a single step is "
                   "modelled; expected a method that exchanges gradients in every step");
  BackwardProfile backward;
  backward.forward_seconds = forward_seconds;
  backward.backward_seconds = *given.backward_seconds;
  CostModel cost = method.declared_cost();
  if (!selection.empty()) {
    for (auto& [name, curve] : cost.selection) {
      curve = {};
      curve.Add(given.density, PiecewiseLinear(selection));
    }
  }
  const ModelConfig model = method.MakeModel(std::move(backward), std::move(cost));
  ModelStep step;
  {
    const GilReleased no_gil;  // parts in Python take the GIL
    step = SimulateStep(model, method.composition().usual_step(), 0);
  }
  const StepRecord& first = step.records.front();
  const auto slowest = std::ranges::max_element(step.records, {}, &StepRecord::step_seconds);
  return py::dict("step_seconds"_a = slowest->step_seconds,
                  "exposed_seconds"_a = first.exposed_communication_seconds,
                  "sparsify_seconds"_a = first.sparsify_seconds, "sent_bytes"_a = first.sent_bytes,
                  "payload_bytes"_a = first.payload_bytes, "plan"_a = model.plan.UnitSizes());
}

// The numbers of tensors of the method's units. Errors of the method and of its parts' constructors
// appear before ranks connect.
std::string PlanOfMethod(const py::kwargs& settings) {
  const ConfiguredMethod method(ReadSettings(settings));
  SaveMemories(MemoriesOf(method.MakeConfig()));
  return method.plan().UnitSizes();
}

template <class Descriptors>
py::list NamesOf(const Descriptors& descriptors) {
  py::list names;
  for (const auto& descriptor : descriptors) names.append(descriptor.name);
  return names;
}

py::dict PartNames() {
  return py::dict("strategy"_a = NamesOf(Strategies()), "planner"_a = NamesOf(Planners()),
                  "sparsifier"_a = NamesOf(Sparsifiers()), "feedback"_a = NamesOf(Feedbacks()),
                  "collective"_a = NamesOf(Collectives()), "quantizer"_a = NamesOf(Quantizers()));
}

}  // namespace

void BindModel(py::module_& module) {
  module.def("_plan_of", &PlanOfMethod);
  module.def("_part_names", &PartNames);
  module.def(
      "_text_with_imports",
      [](const std::string& file, const py::bytes& text) {
        return py::bytes(TextWithImports(std::filesystem::absolute(file).lexically_normal(), text));
      },
      py::arg("file"), py::arg("text"));
  module.def("_model_step", &ModelOneStep, py::arg("forward_seconds"), py::arg("selection"));
}

}  // namespace sparfuse::python
