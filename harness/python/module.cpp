// Defines the Python module. Its documentation for users is in the docstrings; tests run their
// examples.
#include "harness/python/bindings/bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = SPARFUSE_VERSION;
  sparfuse::python::BindErrors(module);
  sparfuse::python::BindSparsifier(module);
  sparfuse::python::BindQuantizer(module);
  sparfuse::python::BindFeedback(module);
  sparfuse::python::BindDecompress(module);
  sparfuse::python::BindPayload(module);
  sparfuse::python::BindPowerSgd(module);
  sparfuse::python::BindMethod(module);
  sparfuse::python::BindPlan(module);
  sparfuse::python::BindThreads(module);
  for (const char* name : {"Sparsifier", "Quantizer", "ErrorFeedback", "PowerSGD"}) {
    module.attr(name).attr("__module__") = "sparfuse";  // where users find them
  }
}
