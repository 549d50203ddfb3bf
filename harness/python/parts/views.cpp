#include "harness/python/parts/views.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "harness/python/arrays.hpp"

namespace sparfuse::python {
namespace py = pybind11;

py::object NamespaceOf(const py::dict& members) {
  return py::module_::import("types").attr("SimpleNamespace")(**members);
}

py::tuple LayoutView(const GradientLayout& layout) {
  py::tuple tensors(layout.tensors());
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    py::dict members;
    members["name"] = tensor.name;
    members["shape"] = py::tuple(py::cast(tensor.shape));
    members["numel"] = tensor.numel;
    members["dense"] = tensor.dense;
    tensors[t] = NamespaceOf(members);
  }
  return tensors;
}

const char* SparsifiedName(Sparsified sparsified) {
  static constexpr const char* kNames[] = {"never", "ahead", "behind"};
  return kNames[static_cast<std::size_t>(sparsified)];
}

py::tuple PlanView(const Plan& plan) {
  py::tuple units(plan.units.size());
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const Unit& unit = plan.units[u];
    py::dict members;
    members["first"] = unit.first;
    members["last"] = unit.last;
    members["sparsified"] = SparsifiedName(unit.sparsified);
    members["density"] = unit.density;
    members["lane"] = std::string(LaneName(unit.lane));
    members["path"] = unit.path;
    members["partitions"] = unit.partitions;
    units[u] = NamespaceOf(members);
  }
  return units;
}

void RequireLetGo(const py::array& view, const char* what, const py::object& returned,
                  const PartCall& call) {
  // What is returned may be the view, or a view of it: it is copied.
  const bool refers = returned.is(view) || py::getattr(returned, "base", py::none()).is(view);
  if (Py_REFCNT(view.ptr()) == (refers ? 2 : 1)) return;
  call.Returned(std::string("and kept ") + what +
                ", whose memory is valid during the call only; keep " + what + ".copy()");
}

void ReadFloatsOf(const py::object& returned, std::span<float> to, const PartCall& call) {
  py::array values;
  try {
    values = CallPython(py::module_::import("numpy").attr("asarray"), returned).cast<py::array>();
  } catch (const py::error_already_set&) {
    call.Returned("a " + TypeText(returned) + "; expected an array of float32");
  }
  if (!values.dtype().is(py::dtype::of<float>()) || values.ndim() != 1 ||
      static_cast<std::size_t>(values.size()) != to.size()) {
    call.Returned("an array of shape " +
                  ShapeText({values.shape(), static_cast<std::size_t>(values.ndim())}) +
                  ", dtype " + py::cast<std::string>(py::str(values.dtype())) + "; expected " +
                  std::to_string(to.size()) + " float32 in one dimension");
  }
  const py::array plain = Plain(values);
  std::memcpy(to.data(), plain.data(), to.size_bytes());
  RequireFiniteOf(to, call);
}

void RequireFiniteOf(std::span<const float> values, const PartCall& call) {
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad == values.end()) return;
  call.Returned("element " + std::to_string(bad - values.begin()) + " = " + std::to_string(*bad) +
                "; expected finite numbers");
}

}  // namespace sparfuse::python
