// Raises errors of core as Python exceptions, one class for each kind that a caller can act on.

#include "core/base/error.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

struct ErrorClasses {
  PyObject* base;
  PyObject* config;
  PyObject* numeric;
  PyObject* unsupported;
};
ErrorClasses classes;  // holds references for the life of the process

PyObject* MakeClass(py::module_& module, const char* name, const char* documentation,
                    const py::tuple& bases) {
  const std::string full = std::string("sparfuse.") + name;
  PyObject* const type =
      PyErr_NewExceptionWithDoc(full.c_str(), documentation, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.add_object(name, type);
  return type;
}

PyObject* ClassOf(FailureKind kind) {
  switch (kind) {
    case FailureKind::kConfig:
    case FailureKind::kComm:  // core's word for a payload that is corrupt: nothing here
                              // communicates
      return classes.config;
    case FailureKind::kNumeric:
      return classes.numeric;
    case FailureKind::kUnsupported:
      return classes.unsupported;
    case FailureKind::kOutOfMemory:
      return PyExc_MemoryError;
    default:
      return classes.base;
  }
}

}  // namespace

void BindErrors(py::module_& module) {
  const py::handle runtime = PyExc_RuntimeError;
  classes.base = MakeClass(module, "Error",
                           R"(The base class of sparfuse's errors; the classes below say the cause.

Wrong types of arguments raise TypeError, as everywhere in Python.

>>> import sparfuse
>>> try:
...     sparfuse.Sparsifier("topk", density=2.0)
... except sparfuse.Error as error:
...     print(error)
density = 2.000000: expected a number in (0, 1]
)",
                           py::make_tuple(runtime));
  const py::handle base = classes.base;
  classes.config = MakeClass(module, "ConfigError",
                             R"(An argument has a value that makes no sense. Also a ValueError.

>>> import sparfuse
>>> sparfuse.Sparsifier("topkk")
Traceback (most recent call last):
    ...
sparfuse.ConfigError: unknown sparsifier "topkk"; did you mean "topk"?
)",
                             py::make_tuple(base, py::handle(PyExc_ValueError)));
  classes.numeric = MakeClass(module, "NumericError",
                              R"(A gradient has a NaN or an infinity. Also an ArithmeticError.

>>> import numpy, sparfuse
>>> g = numpy.array([1, numpy.nan], dtype=numpy.float32)
>>> sparfuse.Sparsifier("topk", density=0.5).select(g, name="fc.bias")
Traceback (most recent call last):
    ...
sparfuse.NumericError: tensor "fc.bias" (id 915095429), step 0: element 1 of 2 is nan; expected a finite gradient
)",
                              py::make_tuple(base, py::handle(PyExc_ArithmeticError)));
  classes.unsupported = MakeClass(module, "UnsupportedError",
                                  R"(The request cannot be served here, say on a GPU's memory.

>>> import sparfuse
>>> issubclass(sparfuse.UnsupportedError, sparfuse.Error)
True
)",
                                  py::make_tuple(base));
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      PyErr_SetString(ClassOf(error.kind()), error.what());
    }
  });
}

}  // namespace sparfuse::python
