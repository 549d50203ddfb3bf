#include "harness/python/layout.hpp"

#include <set>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

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

}  // namespace sparfuse::python
