// Shows layouts, plans and arrays to classes that are written in Python. All functions need the
// GIL.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <span>

#include "core/fusion/plan.hpp"
#include "harness/python/parts/part_class.hpp"

namespace sparfuse::python {

// An object with these attributes.
pybind11::object NamespaceOf(const pybind11::dict& members);

// A tuple of the tensors in ready order: name, shape, numel, dense.
pybind11::tuple LayoutView(const GradientLayout& layout);

// "never", "ahead", "behind".
const char* SparsifiedName(Sparsified sparsified);

// A tuple of units: first, last, sparsified, density, lane, path, partitions.
pybind11::tuple PlanView(const Plan& plan);

// A copy of its own. NumPy's copy would let go of the GIL, and a thread that asks for it again
// while the interpreter ends is ended.
template <class T>
pybind11::array CopyOf(std::span<const T> values) {
  pybind11::array copy(pybind11::dtype::of<T>(), {values.size()}, {sizeof(T)});
  if (!values.empty()) std::memcpy(copy.mutable_data(), values.data(), values.size_bytes());
  return copy;
}

// A read-only copy. Python may hold on to it beyond the call: the traceback of an error holds the
// variables of the functions that it left.
template <class T>
pybind11::array ReadOnlyCopy(std::span<const T> values) {
  pybind11::array copy = CopyOf(values);
  copy.attr("flags").attr("writeable") = false;
  return copy;
}

// Throws Error{kConfig} if the class keeps the view after the call, except within the returned
// object.
void RequireLetGo(const pybind11::array& view, const char* what, const pybind11::object& returned,
                  const PartCall& call);

// The number of an object that passes PyIndex_Check. Throws the error that its __index__ raises,
// and OverflowError.
long long NumberOf(pybind11::handle integer);

// What a call returned, as an array. Throws Error{kConfig} if it is none.
pybind11::array ArrayOf(const pybind11::object& returned, const std::string& dtype,
                        const PartCall& call);

// Copies the float32 array of one dimension that a call returned. Throws Error{kConfig} for another
// type, dtype or size, and for values that are not finite.
void ReadFloatsOf(const pybind11::object& returned, std::span<float> to, const PartCall& call);
void RequireFiniteOf(std::span<const float> values, const PartCall& call);

}  // namespace sparfuse::python
