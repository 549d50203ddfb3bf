// Defines the Python module and its thread pool. Docstrings document it for users; tests run their
// examples.
#include "harness/python/module.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

struct PoolState {
  std::mutex mutex;
  int threads = std::min(Processors(), kMostThreads);
  std::shared_ptr<ThreadPool> pool;  // made on first use
};

// Never destroyed, because Python's threads may still be at work when the process ends.
PoolState& GlobalPool() {
  static PoolState& state = *[] {
    // The threads of a pool do not survive a fork: the child must neither use nor join them.
    pthread_atfork([] { GlobalPool().mutex.lock(); }, [] { GlobalPool().mutex.unlock(); },
                   [] {
                     PoolState& own = GlobalPool();
                     if (own.pool) new std::shared_ptr<ThreadPool>(std::move(own.pool));
                     own.pool = nullptr;
                     own.mutex.unlock();
                   });
    return new PoolState;
  }();
  return state;
}

void SetThreads(const Given<"threads", int>& given) {
  const int threads = given;
  SPARFUSE_REQUIRE(threads >= 1 && threads <= kMostThreads,
                   "set_threads(" + std::to_string(threads) + "): expected 1 to " +
                       std::to_string(kMostThreads));
  PoolState& state = GlobalPool();
  std::shared_ptr<ThreadPool> old;  // joined after the lock is released
  const std::lock_guard lock(state.mutex);
  state.threads = threads;
  old = std::exchange(state.pool, nullptr);
}

void BindThreads(py::module_& module) {
  module.def("set_threads", &SetThreads, py::arg("threads"),
             R"(Sets how many threads an operation runs on, the caller's included: 1 to 1024.

One pool serves the whole process; results do not depend on its size. It starts with the next
operation, which raises UnsupportedError if the system lets this process start fewer threads.

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

}  // namespace

std::shared_ptr<ThreadPool> ModulePool() {
  PoolState& state = GlobalPool();
  const std::lock_guard lock(state.mutex);
  if (!state.pool) state.pool = std::make_shared<ThreadPool>(state.threads);
  return state.pool;
}

int Threads() {
  PoolState& state = GlobalPool();
  const std::lock_guard lock(state.mutex);
  return state.threads;
}

// Refuses a second interpreter of the process before pybind11 waits for a lock that its own thread
// holds. Python calls our function, and it calls the one that the macro defines.
#define PyInit__core PyInitMainInterpreter
PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = SPARFUSE_VERSION;
  BindErrors(module);
  BindSparsifier(module);
  BindQuantizer(module);
  BindFeedback(module);
  BindPayloads(module);
  BindTransforms(module);
  BindPowerSgd(module);
  BindMethod(module);
  BindPlan(module);
  BindRank(module);
  BindModel(module);
  BindThreads(module);
  FindPartsInFiles();
  for (const char* name : {"Sparsifier", "Quantizer", "ErrorFeedback", "PowerSGD"}) {
    module.attr(name).attr("__module__") = "sparfuse";  // where users find them
  }
  RewordTypeErrors(module);
}
#undef PyInit__core

}  // namespace sparfuse::python

extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError,
                    "sparfuse works in the main interpreter of a process only, and this is another "
                    "(a sub-interpreter); expected an import in the main one, or in a process of "
                    "its own");
    return nullptr;
  }
  return sparfuse::python::PyInitMainInterpreter();
}
