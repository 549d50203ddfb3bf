// The Python module. Its documentation for users is in the docstrings; tests run their examples.
#include "harness/python/bindings/bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = SPARFUSE_VERSION;
  sparfuse::BindErrors(module);
  sparfuse::BindSparsifier(module);
  sparfuse::BindQuantizer(module);
  sparfuse::BindFeedback(module);
  sparfuse::BindDecompress(module);
  sparfuse::BindPayload(module);
  sparfuse::BindPowerSgd(module);
  sparfuse::BindMethod(module);
  sparfuse::BindThreads(module);
  for (const char* name : {"Sparsifier", "Quantizer", "ErrorFeedback", "PowerSGD"}) {
    module.attr(name).attr("__module__") = "sparfuse";  // where users find them
  }
}
