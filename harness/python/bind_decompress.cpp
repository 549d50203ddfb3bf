// decompress: payloads of several workers into one dense array.
#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "core/collective/accumulate.hpp"
#include "core/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/bindings.hpp"
#include "harness/python/threads.hpp"

namespace sparfuse {
namespace py = pybind11;
namespace {

[[noreturn]] void ThrowOutOfRange(const std::string& what, std::size_t at, std::int64_t index,
                                  std::size_t n) {
  SPARFUSE_THROW(kConfig, what + "[" + std::to_string(at) + "] = " + std::to_string(index) +
                              ": expected indices in [0, " + std::to_string(n) + ")");
}

// A copy of `indices` as uint32.
template <class T>
py::array Narrow(const py::array& indices, std::size_t n, const std::string& what) {
  const py::array plain = Plain(indices);
  const std::span<const T> from{static_cast<const T*>(plain.data()),
                                static_cast<std::size_t>(plain.size())};
  ArrayMemory<std::uint32_t> to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!std::in_range<std::uint32_t>(from[i])) ThrowOutOfRange(what, i, from[i], n);
    to.data()[i] = static_cast<std::uint32_t>(from[i]);
  }
  return std::move(to).Release();
}

// Plain uint32: the same array where it is that.
py::array ReadIndices(py::handle object, std::size_t n, const std::string& what) {
  const py::array indices = ViewArray(object, what);
  if (py::isinstance<py::array_t<std::uint32_t>>(indices)) return Plain(indices);
  if (py::isinstance<py::array_t<std::int32_t>>(indices)) {
    return Narrow<std::int32_t>(indices, n, what);
  }
  if (py::isinstance<py::array_t<std::int64_t>>(indices)) {
    return Narrow<std::int64_t>(indices, n, what);
  }
  throw py::type_error(what + " has dtype " + py::cast<std::string>(py::str(indices.dtype())) +
                       "; expected uint32 (int32 and int64 are converted)");
}

// Throws Error{kConfig} unless the indices are increasing and below n.
void CheckIndices(std::span<const std::uint32_t> indices, std::size_t n, const std::string& what) {
  std::size_t wrong = 0;  // counted without a branch: this reads as fast as memory
  for (std::size_t i = 1; i < indices.size(); ++i) wrong += indices[i] <= indices[i - 1] ? 1 : 0;
  if (wrong == 0 && (indices.empty() || indices.back() < n)) return;
  std::size_t at = 0;
  while (indices[at] < n && (at == 0 || indices[at] > indices[at - 1])) ++at;
  if (indices[at] >= n) ThrowOutOfRange(what, at, indices[at], n);
  SPARFUSE_THROW(kConfig, what + "[" + std::to_string(at) + "] = " + std::to_string(indices[at]) +
                              " after " + std::to_string(indices[at - 1]) +
                              ": expected increasing indices");
}

py::object Decompress(const py::sequence& payloads, const py::object& shape, bool average,
                      const py::object& out) {
  const std::vector<std::int64_t> extents = ReadShape(shape);
  const std::size_t n = ElementCount(extents);
  SPARFUSE_REQUIRE(n < (std::uint64_t{1} << 32),
                   "decompress: the shape has " + std::to_string(n) +
                       " elements; indices are 32 bits, expected below 2^32");
  SPARFUSE_REQUIRE(py::len(payloads) > 0, "decompress: no payloads; expected at least one");

  std::vector<py::array> indices;
  std::vector<FloatArray> values;
  std::vector<SparsePayload> views;
  for (std::size_t p = 0; p < py::len(payloads); ++p) {
    const std::string what = "payloads[" + std::to_string(p) + "]";
    const py::object pair = payloads[p];
    if (!py::isinstance<py::sequence>(pair) || py::len(pair) != 2) {
      throw py::type_error(what + " is a " + TypeText(pair) + "; expected (indices, values)");
    }
    indices.push_back(ReadIndices(pair[py::int_(0)], n, what + "[0]"));
    values.push_back(ReadFloats(pair[py::int_(1)], what + "[1]"));
    const std::span<const std::uint32_t> at{
        static_cast<const std::uint32_t*>(indices.back().data()),
        static_cast<std::size_t>(indices.back().size())};
    SPARFUSE_REQUIRE(at.size() == values.back().values().size(),
                     what + " has " + std::to_string(at.size()) + " indices and " +
                         std::to_string(values.back().values().size()) + " values");
    views.push_back({at, values.back().values()});
  }

  py::array result;
  std::span<float> dense;
  if (out.is_none()) {
    result = ArrayMemory<float>(n).Release(extents);
    dense = WritableFloats(result, "the result");
  } else {
    result = ViewArray(out, "out");
    SPARFUSE_REQUIRE(
        std::equal(extents.begin(), extents.end(), result.shape(), result.shape() + result.ndim()),
        "out has shape " + ShapeText({result.shape(), result.shape() + result.ndim()}) +
            "; expected " + ShapeText(extents));
    dense = WritableFloats(result, "out");
  }
  {
    const py::gil_scoped_release no_gil;
    for (std::size_t p = 0; p < views.size(); ++p) {
      CheckIndices(views[p].indices, n, "payloads[" + std::to_string(p) + "][0]");
    }
    const float scale = average ? 1.0f / static_cast<float>(views.size()) : 1.0f;
    AccumulateSparse(views, scale, dense, *ModulePool());
  }
  return out.is_none() ? py::object(result) : out;
}

}  // namespace

void BindDecompress(py::module_& module) {
  module.def("decompress", &Decompress, py::arg("payloads"), py::arg("shape"),
             py::arg("average") = true, py::kw_only(), py::arg("out") = py::none(),
             R"(The sum of sparse payloads as a dense float32 array; by default their average.

payloads  a sequence of (indices, values), one of each worker, as select and step return them:
          increasing indices (uint32; int32 and int64 are converted), float32 values. They are
          added in the order given, so that equal payloads give equal bits on every worker.
shape     of the result: an integer, or integers; the product is above every index
average   divide by the number of payloads
out       memory to reuse: a float32 array of that shape in row-major order, overwritten whole and
          returned. It may be a torch.Tensor, say a parameter's gradient.

Raises ConfigError that names payload and position where indices are not increasing or not in the
shape, before anything is written.

>>> import numpy, sparfuse
>>> a = (numpy.array([0, 2], dtype=numpy.uint32), numpy.array([1, 5], dtype=numpy.float32))
>>> b = (numpy.array([2], dtype=numpy.uint32), numpy.array([3], dtype=numpy.float32))
>>> sparfuse.decompress([a, b], (2, 2)).tolist()
[[0.5, 0.0], [4.0, 0.0]]
>>> out = numpy.empty(4, dtype=numpy.float32)
>>> sparfuse.decompress([a, b], 4, average=False, out=out) is out
True
>>> out.tolist()
[1.0, 0.0, 8.0, 0.0]
>>> sparfuse.decompress([a, b], 2)
Traceback (most recent call last):
    ...
sparfuse.ConfigError: payloads[0][0][1] = 2: expected indices in [0, 2)
)");
}

}  // namespace sparfuse
