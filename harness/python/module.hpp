// Declares the shared parts of the Python module: the pool of threads, guards of classes, and the
// functions that bind each part.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/base/thread_pool.hpp"
#include "core/engine/timeline.hpp"
#include "harness/python/gil.hpp"

namespace sparfuse::python {

// The largest number of ranks of a Method or workers of a PowerSGD, all in one process.
inline constexpr int kMostRanks = 1024;

// The pool on which operations run. A caller keeps it alive while set_threads replaces it. A child
// of fork() gets a pool of its own. The GIL is not needed.
std::shared_ptr<ThreadPool> ModulePool();
// As many as processors may be used, unless set.
int Threads();

// Guards classes of Python against objects whose __init__ was never called. For an object that only
// __new__ made, pybind11 takes memory from the class's operator new when a method first uses it,
// and treats its content as a constructed object. A class with this base raises TypeError instead.
// Its __init__ makes an object with Make<Class>(...).
struct MadeByInit {
  static void* operator new(std::size_t) {
    throw pybind11::type_error(
        "this object was made without its __init__; expected a call of the class, and of "
        "super().__init__() in a class derived from it");
  }
};

template <class Class, class... Arguments>
std::unique_ptr<Class> Make(Arguments&&... arguments) {
  return std::unique_ptr<Class>(::new Class(std::forward<Arguments>(arguments)...));
}

// Each throws Error{kConfig} naming the argument if it is out of its range.
int CheckedThreads(int threads);
std::chrono::milliseconds DeadlineOf(double seconds);

// The entry for a span in a timeline of Python.
pybind11::dict EntryOf(const Span& span);

// Each binds the classes and functions of its file.
void BindErrors(pybind11::module_& module);
void BindSparsifier(pybind11::module_& module);
void BindQuantizer(pybind11::module_& module);
void BindFeedback(pybind11::module_& module);
void BindPayloads(pybind11::module_& module);
void BindTransforms(pybind11::module_& module);
void BindPowerSgd(pybind11::module_& module);
void BindMethod(pybind11::module_& module);
void BindPlan(pybind11::module_& module);
void BindRank(pybind11::module_& module);
void BindModel(pybind11::module_& module);

// Shortens the TypeErrors of calls that fit no signature of a function of the module, which must
// all be bound: type_errors.cpp.
void RewordTypeErrors(const pybind11::module_& module);

}  // namespace sparfuse::python
