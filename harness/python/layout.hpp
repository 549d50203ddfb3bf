// Reads layouts that come from Python. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "baselines/composition.hpp"

namespace sparfuse::python {

// Names and shapes as tensors, in the order given. Throws Error{kConfig} naming the tensor where a
// name comes twice or a shape has no elements, or 2^32 and more, or negative extents; where there
// is no tensor. Throws TypeError for what is no shape.
std::vector<TensorShape> ReadTensors(
    std::span<const std::pair<std::string, pybind11::object>> layout);

}  // namespace sparfuse::python
