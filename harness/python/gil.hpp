// Gives Python's lock back and takes it, in threads that may outlive the interpreter.
//
// Python ends a daemon thread that asks for the lock while the program ends. Before 3.14 it does so
// by unwinding. Destructors cannot be unwound, and destructors on the way would touch objects of
// Python without the lock. Therefore such a thread waits here for the end of the process, as it
// does in Python 3.14 and later.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace sparfuse::python {

// Runs code that may end this thread. `run` must have nothing to destroy at that point.
template <class Run>
auto UnlessEnding(const Run& run) {
  try {
    return run();
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

// Releases the lock for its lifetime. The caller holds the GIL.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    UnlessEnding([&] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// With the lock for its lifetime, in any thread.
class GilHeld {
 public:
  GilHeld() {
    UnlessEnding([&] { held_.emplace(); });
  }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  std::optional<pybind11::gil_scoped_acquire> held_;
};

// Whether the interpreter is ending, when no other thread gets the lock any more.
inline bool InterpreterEnds() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// An object of Python that any thread may copy and free, with the GIL or without. If it is left
// when the interpreter ends, the process frees it. The caller holds the GIL.
using KeptObject = std::shared_ptr<pybind11::object>;
inline KeptObject Keep(pybind11::object object) {
  return KeptObject(new pybind11::object(std::move(object)), [](pybind11::object* kept) {
    if (InterpreterEnds()) return;
    const GilHeld gil;
    delete kept;
  });
}

// callable(*arguments, **keywords). Throws the errors that it raises.
inline pybind11::object CallWithKeywords(const pybind11::object& callable,
                                         std::span<PyObject* const> arguments,
                                         const pybind11::dict& keywords) {
  PyObject* const result = UnlessEnding([&] {
    return PyObject_VectorcallDict(callable.ptr(), arguments.data(), arguments.size(),
                                   keywords.ptr());
  });
  if (result == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(result);
}

// callable(*arguments). Throws the errors that it raises.
template <class... Arguments>
pybind11::object CallPython(const pybind11::object& callable, const Arguments&... arguments) {
  PyObject* const result = UnlessEnding(
      [&] { return PyObject_CallFunctionObjArgs(callable.ptr(), arguments.ptr()..., nullptr); });
  if (result == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(result);
}

}  // namespace sparfuse::python
