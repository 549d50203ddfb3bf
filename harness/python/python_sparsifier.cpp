#include "harness/python/python_sparsifier.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/part_call.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;

PythonSparsifier::PythonSparsifier(std::string name, py::object object, bool exact_count)
    : name_(std::move(name)), object_(std::move(object)), exact_count_(exact_count) {
  SPARFUSE_REQUIRE(
      py::hasattr(object_, "select") && PyCallable_Check(object_.attr("select").ptr()) != 0,
      "sparsifier \"" + name_ + "\": " + TypeText(object_) + " has no method select(g, k)");
  ReadSignature();
}

PythonSparsifier::~PythonSparsifier() {
  const GilHeld gil;
  object_ = py::object();
}

PartMemory PythonSparsifier::Memory() const {
  return {"sparsifier", "sparsifier \"" + name_ + "\"", Keep(object_)};
}

void PythonSparsifier::ReadSignature() {
  const py::object inspect = py::module_::import("inspect");
  py::object parameters;
  try {
    parameters = CallPython(inspect.attr("signature"), object_.attr("select")).attr("parameters");
  } catch (py::error_already_set&) {  // for instance, a compiled class
    return;
  }
  const py::object kinds = inspect.attr("Parameter");
  for (const py::handle parameter : parameters.attr("values")()) {
    const py::object kind = parameter.attr("kind");
    const bool any = kind.equal(kinds.attr("VAR_KEYWORD"));
    if (!any && !kind.equal(kinds.attr("POSITIONAL_OR_KEYWORD")) &&
        !kind.equal(kinds.attr("KEYWORD_ONLY")))
      continue;
    const auto name = parameter.attr("name").cast<std::string>();
    takes_name_ = takes_name_ || any || name == "name";
    takes_step_ = takes_step_ || any || name == "step";
  }
}

void PythonSparsifier::Select(const SelectContext& context, const SelectSource& source,
                              double density, const TensorInfo& info, SparsifierState* /*state*/,
                              Slot& slot) const {
  SelectInput input = BeginSelect(name_, context, source, density, info, slot);
  const std::size_t k = KeptCount(input.n, density);
  RequireRoom(name_, info, slot.capacity, k);
  if (k == input.n) return SelectAll(context, input, info, slot);
  AddPending(context, input, info);
  CallSelect(input, k, info, slot);
  for (std::size_t i = 0; i < slot.count; ++i) {
    const std::uint32_t index = slot.indices.data[i];
    slot.values.data[i] = input.x()[index];
    if (input.residual != nullptr) input.residual[index] = 0.0f;
  }
}

void PythonSparsifier::CallSelect(const SelectInput& input, std::size_t k, const TensorInfo& info,
                                  Slot& slot) const {
  const RunningCall running(name_, "select(g, k)");
  const py::array view = ReadOnlyCopy(std::span(input.x(), input.n));
  const py::int_ count(k);
  py::dict told;
  if (takes_name_) told["name"] = py::str(info.name.data(), info.name.size());
  if (takes_step_) told["step"] = info.step;
  const std::array<PyObject*, 2> arguments = {view.ptr(), count.ptr()};
  ReadReturned(CallWithKeywords(object_.attr("select"), arguments, told), input.n, k, info, slot);
  RequireLetGo(view, info);
}

void PythonSparsifier::RequireLetGo(const py::array& view, const TensorInfo& info) const {
  if (view.ref_count() == 1) return;
  CallPython(py::module_::import("gc").attr("collect"));  // for cycles, as in a caught exception
  if (view.ref_count() == 1) return;
  SPARFUSE_THROW(kConfig, "sparsifier \"" + name_ + "\": " + TypeText(object_) +
                              ".select(g, k) keeps g or a view of it, for tensor \"" +
                              std::string(info.name) + "\", step " + std::to_string(info.step) +
                              "; its memory is valid during the call only: keep g.copy()");
}

void PythonSparsifier::ReadReturned(const py::object& returned, std::size_t n, std::size_t k,
                                    const TensorInfo& info, Slot& slot) const {
  const auto refuse = [&](const std::string& what) {
    SPARFUSE_THROW(kConfig, "sparsifier \"" + name_ + "\": " + TypeText(object_) +
                                ".select(g, k) returned " + what + " for tensor \"" +
                                std::string(info.name) + "\", step " + std::to_string(info.step));
  };
  py::array indices;
  try {
    indices = CallPython(py::module_::import("numpy").attr("asarray"), returned).cast<py::array>();
  } catch (py::error_already_set&) {
    refuse("a " + TypeText(returned) + "; expected an array of integers");
  }
  const char kind = indices.dtype().kind();
  if (kind == 'O') refuse("a " + TypeText(returned) + "; expected an array of integers");
  const auto count = static_cast<std::size_t>(indices.size());
  const bool integers = kind == 'i' || kind == 'u' || count == 0;  // numpy.asarray([]) has floats
  if (indices.ndim() != 1 || !integers) {
    refuse("an array of " + std::to_string(indices.ndim()) + " dimensions, dtype " +
           py::cast<std::string>(py::str(indices.dtype())) +
           "; expected integers in one dimension");
  }
  if (exact_count_ ? count != k : count == 0 || count > slot.capacity) {
    refuse(std::to_string(count) + " indices; expected " +
           (exact_count_
                ? std::to_string(k) + " (a class whose count may differ says exact_count = False)"
                : "1 to " + std::to_string(slot.capacity)));
  }
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(indices);
  const std::span<const std::int64_t> given{wide.data(), count};
  for (const std::int64_t index : given) {
    if (index < 0 || static_cast<std::size_t>(index) >= n) {
      refuse("index " + std::to_string(index) + "; expected indices in [0, " + std::to_string(n) +
             ")");
    }
  }
  std::uint32_t* const out = slot.indices.data;
  std::transform(given.begin(), given.end(), out,
                 [](std::int64_t index) { return static_cast<std::uint32_t>(index); });
  std::sort(out, out + count);
  if (const auto* twice = std::adjacent_find(out, out + count); twice != out + count) {
    refuse("index " + std::to_string(*twice) + " more than once");
  }
  slot.count = count;
}

}  // namespace sparfuse::python
