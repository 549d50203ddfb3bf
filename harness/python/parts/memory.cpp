#include "harness/python/parts/memory.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/part_class.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

bool HasMethod(const py::object& of, const char* name) {
  const py::object method = py::getattr(of, name, py::none());
  return PyCallable_Check(method.ptr()) != 0;
}

py::object DeepCopy(const py::object& state) {
  return CallPython(py::module_::import("copy").attr("deepcopy"), state);
}

}  // namespace

bool KeepsMemory(const py::object& of, const std::string& who) {
  const bool saves = HasMethod(of, "state_dict"), loads = HasMethod(of, "load_state_dict");
  SPARFUSE_REQUIRE(
      saves == loads,
      who + ": the class has " + (saves ? "state_dict" : "load_state_dict") +
          " alone; expected both state_dict(self) and load_state_dict(self, state), or "
          "neither");
  return saves;
}

PartMemory::PartMemory(std::string kind, std::string who, KeptObject object)
    : kind_(std::move(kind)),
      who_(std::move(who)),
      object_(std::move(object)),
      kept_(KeepsMemory(*object_, who_)) {}

template <class Call>
auto PartMemory::Do(const char* called, const Call& call) const {
  const RunningCall running(who_, called);
  try {
    return call();
  } catch (const py::error_already_set& error) {
    SPARFUSE_THROW(kConfig, who_ + ": " + called + " raised " + LastLine(error));
  }
}

py::object PartMemory::Save() const {
  return Do("state_dict()", [&] {
    const py::object state = CallPython(object_->attr("state_dict"));
    SPARFUSE_REQUIRE(py::isinstance<py::dict>(state),
                     who_ + ": state_dict() returned a " + TypeText(state) + "; expected a dict");
    return DeepCopy(state);
  });
}

void PartMemory::Load(const py::object& state) const {
  Do("load_state_dict(state)",
     [&] { CallPython(object_->attr("load_state_dict"), DeepCopy(state)); });
}

py::dict SaveMemories(const std::vector<PartMemory>& memories) {
  py::dict states;
  for (const PartMemory& memory : memories)
    if (memory.kept()) states[memory.kind().c_str()] = memory.Save();
  return states;
}

void LoadMemories(const std::vector<PartMemory>& memories, const py::dict& states) {
  py::dict left = states.attr("copy")();
  for (const PartMemory& memory : memories) {
    const char* const kind = memory.kind().c_str();
    SPARFUSE_REQUIRE(memory.kept() || !left.contains(kind),
                     memory.who() +
                         ": the state has its memory, but the class has no load_state_dict(self, "
                         "state); expected the class that saved it");
    if (!memory.kept()) continue;
    SPARFUSE_REQUIRE(left.contains(kind),
                     memory.who() +
                         ": the state has nothing that it remembered; expected one that "
                         "was saved when the class had state_dict(self)");
    left.attr("pop")(kind);
  }
  for (const auto& [kind, state] : left) {
    SPARFUSE_THROW(kConfig,
                   "the state has what a " + py::cast<std::string>(py::str(kind)) +
                       " in Python remembered, and the method has none; expected a state of "
                       "the same parts");
  }
  for (const PartMemory& memory : memories)
    if (memory.kept()) memory.Load(states[memory.kind().c_str()]);
}

}  // namespace sparfuse::python
