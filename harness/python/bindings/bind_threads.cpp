// Binds set_threads and threads.
#include "harness/python/bindings/bindings.hpp"
#include "harness/python/threads.hpp"

namespace sparfuse::python {
namespace py = pybind11;

void BindThreads(py::module_& module) {
  module.def("set_threads", &SetThreads, py::arg("threads"),
             R"(Sets how many threads an operation runs on, the caller's included: 1 to 1024.

One pool serves the whole process; results do not depend on its size. It starts with the next
operation, which raises UnsupportedError where the system lets this process start fewer threads.

>>> import sparfuse
>>> sparfuse.set_threads(2)
>>> sparfuse.threads()
2
)");
  module.def("threads", &Threads,
             R"(How many threads an operation runs on: unless set, one for each usable processor.

>>> import sparfuse
>>> sparfuse.threads() >= 1
True
)");
}

}  // namespace sparfuse::python
