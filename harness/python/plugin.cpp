// Makes parts from Python classes, in an interpreter that it starts in this process.
#include <pybind11/embed.h>

#include <mutex>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "harness/catalog/python_plugin.hpp"
#include "harness/python/gil.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// Starts the interpreter of the virtual environment with which this was built, with its NumPy. It
// lives as long as the process, because threads may hold Python's objects until the end.
void StartInterpreter() {
  static std::once_flag started;
  std::call_once(started, [] {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    config.parse_argv = 0;
    PyConfig_SetBytesString(&config, &config.program_name, SPARFUSE_PYTHON_EXECUTABLE);
    try {
      py::initialize_interpreter(&config, 0, nullptr, false);
    } catch (const std::exception& error) {
      SPARFUSE_THROW(kConfig, std::string("Python does not start (") + SPARFUSE_PYTHON_EXECUTABLE +
                                  "): " + error.what());
    }
    PyEval_SaveThread();
  });
}

template <class Descriptor>
const Descriptor& Made(PartSource source) {
  StartInterpreter();
  const GilHeld gil;
  return std::get<harness::MakePart<Descriptor>>(kMakeParts)(std::move(source));
}

// Lives as long as the program, like the parts that it makes.
const harness::PythonPlugin kPlugin = {
    .sparsifier =
        [](const PartSource& source, const Options& options, std::uint64_t seed) {
          StartInterpreter();
          const GilHeld gil;
          return SparsifierOf(source, options, seed).release();
        },
    .parts = {&Made<PlannerDescriptor>, &Made<StrategyDescriptor>, &Made<FeedbackDescriptor>,
              &Made<CollectiveDescriptor>, &Made<QuantizerDescriptor>},
    .watch =
        [](const harness::PartWatch& watch) {
          StartInterpreter();
          const GilHeld gil;
          WatchPartCalls(watch);
        },
    .seconds = &PythonSeconds};

}  // namespace

extern "C" __attribute__((visibility("default"))) const harness::PythonPlugin*
SparfusePythonPlugin() {
  return &kPlugin;
}

}  // namespace sparfuse::python
