// Tells which call of a part written in Python does not return.
#pragma once

#include <chrono>
#include <string>

namespace sparfuse::python {

// "python:FILE.py:Class: select(g, k) has not returned for 4 s" of the longest call
// that runs in this process, if it began so long ago; else empty. Needs no GIL.
std::string LatePartCall(std::chrono::milliseconds since);

}  // namespace sparfuse::python
