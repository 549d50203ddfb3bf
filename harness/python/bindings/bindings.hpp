// Declares the parts that module.cpp puts together.
#pragma once

#include <pybind11/pybind11.h>

namespace sparfuse::python {

void BindErrors(pybind11::module_& module);
void BindSparsifier(pybind11::module_& module);
void BindQuantizer(pybind11::module_& module);
void BindFeedback(pybind11::module_& module);
void BindDecompress(pybind11::module_& module);
void BindPayload(pybind11::module_& module);
void BindPowerSgd(pybind11::module_& module);
void BindMethod(pybind11::module_& module);
void BindPlan(pybind11::module_& module);
void BindThreads(pybind11::module_& module);

}  // namespace sparfuse::python
