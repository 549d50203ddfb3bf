// Finds codings of sparse payloads by their names in Python.
#pragma once

#include <string>

#include "core/quantize/coding/payload_coding.hpp"

namespace sparfuse::python {

// "f16" or "f32". Throws Error{kConfig} for another.
ValueCoding ReadValueCoding(const std::string& values);

}  // namespace sparfuse::python
