// Plans by a class that is written in Python.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <utility>

#include "core/fusion/plan_times.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

class PythonPlanner final : public Planner {
 public:
  PythonPlanner(const PartClass& part, KeptObject object)
      : part_(part), object_(std::move(object)) {}

  Plan MakePlan(const PlanInput& input) const override {
    Plan plan = Planned(input);
    if (plan != Planned(input)) {
      part_.Refuse("plan(layout, given) returned two plans for the same layout, " +
                   plan.UnitSizes() + " first; expected the same one from each call");
    }
    return plan;
  }

 private:
  Plan Planned(const PlanInput& input) const {
    // Functions that a class keeps beyond the call find no input.
    const auto there = std::make_shared<const PlanInput*>(&input);
    const PartCall call(part_, "plan(layout, given)");
    try {
      Plan plan = call([&] {
        const py::object layout = LayoutView(input.layout), given = Given(input, there);
        return ReadPlan(CallPython(object_->attr("plan"), layout, given), input, call);
      });
      *there = nullptr;
      return plan;
    } catch (...) {
      *there = nullptr;
      throw;
    }
  }

  py::object Given(const PlanInput& input, const std::shared_ptr<const PlanInput*>& there) const {
    py::dict members("density"_a = input.density, "workers"_a = input.topology.ranks,
                     "nodes"_a = input.topology.nodes(),
                     "ranks_per_node"_a = input.topology.ranks_per_node,
                     "sparsified"_a = SparsifiedName(input.sparsified));
    members["backward_seconds"] = input.backward == nullptr
                                      ? py::object(py::none())
                                      : py::tuple(py::cast(input.backward->backward_seconds));
    const auto input_of = [this, there](const char* function) -> const PlanInput& {
      if (*there == nullptr || (*there)->backward == nullptr || (*there)->cost == nullptr) {
        part_.Refuse(std::string("given.") + function + " was called " +
                     (*there == nullptr ? "after plan had returned; expected it within the call"
                                        : "without a profile; expected a class that says "
                                          "needs_profile = True"));
      }
      return **there;
    };
    members["exchange_seconds"] = py::cpp_function([this, input_of](std::size_t elements) {
      const PlanInput& from = input_of("exchange_seconds");
      return MergedTimes(from, part_.source().name).Exchange(elements);
    });
    members["select_seconds"] = py::cpp_function([this, input_of](std::size_t elements) {
      const PlanInput& from = input_of("select_seconds");
      if (from.sparsified == Sparsified::kNever || from.sparsifier.empty()) return 0.0;
      return PlanTimes(from, part_.source().name)
          .SparsifyFused(elements, from.density, Lane::kCompute);
    });
    return NamespaceOf(members);
  }

  static std::size_t Whole(const py::handle& value, std::size_t most, const std::string& what,
                           const PartCall& call) {
    if (py::isinstance<py::bool_>(value) || PyIndex_Check(value.ptr()) == 0) {
      call.Returned(what + " that is a " + TypeText(value) + "; expected an integer");
    }
    const long long number = NumberOf(value);
    if (number < 1 || static_cast<std::size_t>(number) > most) {
      call.Returned(what + " = " + std::to_string(number) + "; expected 1 to " +
                    std::to_string(most));
    }
    return static_cast<std::size_t>(number);
  }

  static void ReadUnit(const py::dict& given, Unit& unit, const std::string& which,
                       const PartCall& call) {
    for (const auto& [key_object, value] : given) {
      const auto key = py::cast<std::string>(py::str(key_object));
      const std::string what = which + " with " + key;
      if (key == "tensors") continue;
      if (key == "density") {
        if (!py::isinstance<py::float_>(value) && !py::isinstance<py::int_>(value)) {
          call.Returned(what + " that is a " + TypeText(value) + "; expected a number in (0, 1]");
        }
        unit.density = value.cast<double>();
        if (!(unit.density > 0 && unit.density <= 1)) {
          call.Returned(what + " = " + std::to_string(unit.density) +
                        "; expected a number in (0, 1]");
        }
      } else if (key == "lane") {
        const auto lane = py::cast<std::string>(py::str(value));
        if (lane != "compute" && lane != "side" && lane != "host") {
          call.Returned(what + " = \"" + lane + "\"; expected \"compute\", \"side\" or \"host\"");
        }
        unit.lane = lane == "compute" ? Lane::kCompute : lane == "side" ? Lane::kSide : Lane::kHost;
      } else if (key == "partitions") {
        unit.partitions = static_cast<std::uint16_t>(Whole(value, 65'535, what, call));
      } else if (key == "path") {
        unit.path = static_cast<std::uint8_t>(Whole(value, 255, what, call));
      } else {
        call.Returned(which + " with the key \"" + key +
                      "\"; expected tensors, density, lane, path or partitions");
      }
    }
  }

  static Plan ReadPlan(const py::object& returned, const PlanInput& input, const PartCall& call) {
    const std::size_t tensors = input.layout.tensors();
    if (PySequence_Check(returned.ptr()) == 0 || py::isinstance<py::str>(returned)) {
      call.Returned("a " + TypeText(returned) +
                    "; expected a list of numbers of tensors, or of dicts");
    }
    Plan plan;
    std::size_t next = 0;
    for (const py::handle given : py::reinterpret_borrow<py::sequence>(returned)) {
      const std::string which = "unit " + std::to_string(plan.units.size());
      const bool is_dict = py::isinstance<py::dict>(given);
      if (is_dict && !given.contains("tensors")) {
        call.Returned(which + " without \"tensors\"; expected its number of tensors");
      }
      const py::object size =
          is_dict ? py::object(given["tensors"]) : py::reinterpret_borrow<py::object>(given);
      const std::size_t count = Whole(size, tensors, which + " with a number of tensors", call);
      Unit unit{next, next + count, input.sparsified, input.density};
      if (is_dict) ReadUnit(py::reinterpret_borrow<py::dict>(given), unit, which, call);
      plan.units.push_back(unit);
      next += count;
    }
    if (next != tensors) {
      call.Returned("units of " + std::to_string(next) + " tensors together; expected all " +
                    std::to_string(tensors) + " of the layout, each once");
    }
    return plan;
  }

  const PartClass& part_;
  KeptObject object_;
};

PlannerDescriptor DescribePlanner(PartClass& part) {
  PlannerDescriptor descriptor = {
      .name = part.source().name,
      .summary = "written in Python",
      .source = part.Text("paper"),
      .revision = 1,
      .options = part.options(),
      .make = [&part](const Options& resolved) -> std::unique_ptr<Planner> {
        return std::make_unique<PythonPlanner>(part, part.Make(resolved));
      },
      .ahead_only = part.Flag("ahead_only", false),
      .deviations = part.Text("deviations")};
  if (part.Flag("needs_profile", false)) {
    descriptor.needs_profile = [](const Options&) { return true; };
  }
  return descriptor;
}

}  // namespace

const PlannerDescriptor& PlannerOf(PartSource source) {
  return KeepPart(std::move(source), {"plan(layout, given)"}, &DescribePlanner);
}

}  // namespace sparfuse::python
