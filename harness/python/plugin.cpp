// Makes sparsifiers of Python classes, in an interpreter that it starts in this process.
#include <pybind11/embed.h>

#include <mutex>

#include "core/base/error.hpp"
#include "harness/catalog/python_plugin.hpp"
#include "harness/python/gil.hpp"
#include "harness/python/python_sparsifier.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using harness::PythonClass;

namespace {

// The interpreter of the virtual environment that this was built with, NumPy beside it. It lives
// as long as the process: threads may hold Python's objects until the end.
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

// "ValueError: no good (FILE.py, line 7)": the last line of what Python would print, and its place.
std::string LastLine(const py::error_already_set& error) {
  const py::module_ traceback = py::module_::import("traceback");
  const py::list lines = traceback.attr("format_exception_only")(error.type(), error.value());
  std::string text = py::cast<std::string>(lines[lines.size() - 1].attr("strip")());
  if (!error.trace()) return text;
  const py::list frames = traceback.attr("extract_tb")(error.trace());
  if (frames.empty()) return text;
  const py::object frame = frames[frames.size() - 1];
  return text + " (" + py::cast<std::string>(frame.attr("filename")) + ", line " +
         py::cast<std::string>(py::str(frame.attr("lineno"))) + ")";
}

py::dict Keywords(const PythonClass& given, const py::object& type) {
  py::dict keywords;
  for (const auto& [key, value] : given.options) {
    keywords[key.c_str()] =
        std::visit([](const auto& held) -> py::object { return py::cast(held); }, value);
  }
  const py::object signature = py::module_::import("inspect").attr("signature")(type);
  if (signature.attr("parameters").contains("seed") && !keywords.contains("seed")) {
    keywords["seed"] = given.seed;
  }
  return keywords;
}

// The text is what was hashed; the file may be another by now.
py::object Instance(const PythonClass& given) {
  const py::module_ sys = py::module_::import("sys");
  const py::module_ builtins = py::module_::import("builtins");
  const py::str folder = given.file.parent_path().string();
  py::list path = sys.attr("path");
  if (!path.contains(folder)) path.insert(0, folder);
  const std::string name = "sparfuse_sparsifier_" + given.file.stem().string();
  const py::object module = py::module_::import("types").attr("ModuleType")(name);
  module.attr("__file__") = given.file.string();
  sys.attr("modules")[name.c_str()] = module;  // where classes look for what they were defined in
  const py::object code =
      builtins.attr("compile")(py::bytes(given.text), given.file.string(), "exec");
  builtins.attr("exec")(code, module.attr("__dict__"));
  const py::object type = py::getattr(module, given.class_name.c_str(), py::none());
  SPARFUSE_REQUIRE(PyType_Check(type.ptr()) != 0,
                   "sparsifier \"" + given.sparsifier + "\": " + given.file.string() +
                       " defines no class \"" + given.class_name + "\" when it is run");
  return type(**Keywords(given, type));
}

// What the class raises ends the trial as a mistake of its configuration, which names it.
class FileSparsifier final : public Sparsifier {
 public:
  FileSparsifier(const PythonClass& given, const py::object& object)
      : name_(given.name),
        shown_(given.sparsifier),
        python_(shown_, object,
                py::cast<bool>(py::getattr(object, "exact_count", py::bool_(true)))) {}

  std::string_view name() const noexcept override { return name_; }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    try {
      python_.Select(context, source, density, info, state, slot);
    } catch (const py::error_already_set& error) {
      const GilHeld gil;
      SPARFUSE_THROW(kConfig, "sparsifier \"" + shown_ + "\": select(g, k) raised for tensor \"" +
                                  std::string(info.name) + "\", step " + std::to_string(info.step) +
                                  ": " + LastLine(error));
    }
  }

 private:
  std::string name_, shown_;
  PythonSparsifier python_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Sparsifier* SparfuseMakePythonSparsifier(
    const PythonClass& given) {
  StartInterpreter();
  const GilHeld gil;
  try {
    return new FileSparsifier(given, Instance(given));
  } catch (const py::error_already_set& error) {
    SPARFUSE_THROW(kConfig, "sparsifier \"" + given.sparsifier + "\": making a " +
                                given.class_name + " raised " + LastLine(error));
  }
}

}  // namespace sparfuse::python
