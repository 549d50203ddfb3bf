#include "harness/python/parts/views.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "harness/python/arrays.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;

py::object NamespaceOf(const py::dict& members) {
  return py::module_::import("types").attr("SimpleNamespace")(**members);
}

py::tuple LayoutView(const GradientLayout& layout) {
  py::tuple tensors(layout.tensors());
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    tensors[t] =
        NamespaceOf(py::dict("name"_a = tensor.name, "shape"_a = py::tuple(py::cast(tensor.shape)),
                             "numel"_a = tensor.numel, "dense"_a = tensor.dense));
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
    units[u] = NamespaceOf(py::dict("first"_a = unit.first, "last"_a = unit.last,
                                    "sparsified"_a = SparsifiedName(unit.sparsified),
                                    "density"_a = unit.density, "lane"_a = LaneName(unit.lane),
                                    "path"_a = unit.path, "partitions"_a = unit.partitions));
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

long long NumberOf(py::handle integer) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(integer.ptr()));
  const long long number = index ? PyLong_AsLongLong(index.ptr()) : -1;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return number;
}

py::array ArrayOf(const py::object& returned, const std::string& dtype, const PartCall& call) {
  try {
    return CallPython(py::module_::import("numpy").attr("asarray"), returned).cast<py::array>();
  } catch (const py::error_already_set&) {
    call.Returned("a " + TypeText(returned) + "; expected an array of " + dtype);
  }
}

void ReadFloatsOf(const py::object& returned, std::span<float> to, const PartCall& call) {
  const py::array values = ArrayOf(returned, "float32", call);
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
