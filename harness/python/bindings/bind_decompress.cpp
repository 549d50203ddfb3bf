// Binds decompress: payloads of several workers into one dense array.
#include <pybind11/stl.h>

#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/bindings/bindings.hpp"
#include "harness/python/threads.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

py::object Decompress(const py::sequence& payloads, const py::object& shape, bool average,
                      const py::object& out) {
  const std::vector<std::int64_t> extents = ReadShape(shape);
  const std::size_t n = ElementCount(extents);
  SPARFUSE_REQUIRE(n < (std::uint64_t{1} << 32),
                   "decompress: the shape has " + std::to_string(n) +
                       " elements; indices are 32 bits, expected below 2^32");
  SPARFUSE_REQUIRE(py::len(payloads) > 0, "decompress: no payloads; expected at least one");

  std::vector<py::array_t<std::uint32_t>> indices;
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
    views.push_back({ViewOf(indices.back()), values.back().values()});
    SPARFUSE_REQUIRE(views.back().indices.size() == views.back().values.size(),
                     what + " has " + std::to_string(views.back().indices.size()) +
                         " indices and " + std::to_string(views.back().values.size()) + " values");
  }

  const DenseResult result = MakeDense(out, extents);
  for (std::size_t p = 0; p < views.size(); ++p) {
    const std::string what = "payloads[" + std::to_string(p) + "]";
    const std::span<const std::byte> written = std::as_bytes(result.values);
    RequireApart("out", written, what + "[0]", std::as_bytes(views[p].indices));
    RequireApart("out", written, what + "[1]", std::as_bytes(views[p].values));
  }
  {
    const py::gil_scoped_release no_gil;
    for (std::size_t p = 0; p < views.size(); ++p) {
      CheckIndices(views[p].indices, n, "payloads[" + std::to_string(p) + "][0]");
    }
    const float scale = average ? 1.0f / static_cast<float>(views.size()) : 1.0f;
    AccumulateSparse(views, scale, result.values, *ModulePool());
  }
  return result.object;
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
          returned. It may be a torch.Tensor, say a parameter's gradient, and no memory of payloads.

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

}  // namespace sparfuse::python
