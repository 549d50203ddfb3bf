// Declares the classes Sparsifier and Quantizer of Python, and binds the functions that both have.
#pragma once

#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/coding/payload_coding.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/compressors.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {

template <class Configured, class Compressor>
struct Bound : MadeByInit {
  explicit Bound(std::shared_ptr<Configured> made)
      : configured(std::move(made)), compressor(configured) {}

  std::shared_ptr<Configured> configured;
  ObjectMutex mutex;  // guards compressor
  Compressor compressor;
};

using BoundSparsifier = Bound<ConfiguredSparsifier, Selector>;
using BoundQuantizer = Bound<const ConfiguredQuantizer, Encoder>;

// Sparsifier.select and Quantizer.encode: the compressor's results for g, as NumPy arrays.
template <class Object>
auto CompressOne(Object& self, const pybind11::object& g,
                 const Given<"name", std::optional<std::string>>& name,
                 const Given<"step", std::optional<std::uint64_t>>& step) {
  const FloatArray gradient = ReadGradient(g);
  const std::string tensor = TensorName(*name, gradient.shape);
  return [&] {
    const GilReleased no_gil;
    const std::lock_guard lock(self.mutex);
    return self.compressor.Compress(tensor, gradient.shape, gradient.values(), {}, *step);
  }()
             .Release();
}

// Saves the state of a compressor in a dict, as "steps" and, for a class in Python, "parts". `also`
// runs while nothing changes. The caller holds the GIL.
template <class Compressor, class Also = void (*)()>
void SaveState(
    Compressor& compressor, ObjectMutex& mutex, pybind11::dict& state, const Also& also = [] {}) {
  const std::vector<PartMemory> memories = compressor.Memories();
  StepsByTensor steps;
  {
    const GilReleased no_gil;
    const std::lock_guard lock(mutex);
    also();
    steps = compressor.Steps();
    const GilHeld gil;
    state["parts"] = SaveMemories(memories);
  }
  state["steps"] = StepsToPython(steps);
}

// Restores the state that SaveState saved. Throws the errors of TensorSteps and LoadMemories.
// `also` runs then.
template <class Compressor, class Also = void (*)()>
void LoadState(
    Compressor& compressor, ObjectMutex& mutex, const pybind11::object& state,
    const Also& also = [] {}) {
  const StepsByTensor steps = ReadSteps(StateOf(state, "steps"));
  const auto given = state.cast<pybind11::dict>();
  // States of earlier versions have no parts.
  const auto parts =
      given.contains("parts") ? given["parts"].template cast<pybind11::dict>() : pybind11::dict();
  const std::vector<PartMemory> memories = compressor.Memories();
  const GilReleased no_gil;
  const std::lock_guard lock(mutex);
  {
    const GilHeld gil;
    LoadMemories(memories, parts);
  }
  compressor.SetSteps(steps);
  also();
}

// Binds pickling: the class with its name, options, seed, and density or rank; tensors' steps.
template <class Object>
void BindPickling(pybind11::class_<Object>& type) {
  type.def(
          "__reduce__",
          [](const pybind11::object& self) {
            auto& own = self.cast<Object&>();
            pybind11::dict keywords = own.configured->options.attr("copy")();
            for (const char* key : {"name", "seed"}) keywords[key] = self.attr(key);
            const char* const third = pybind11::hasattr(self, "density") ? "density" : "rank";
            keywords[third] = self.attr(third);
            pybind11::dict state;
            SaveState(own.compressor, own.mutex, state);
            return Reduce(self, pybind11::tuple(), keywords, state);
          },
          "For pickle and copy: the object goes on as this one would, bit for bit.")
      .def("_load_steps", [](Object& self, const pybind11::object& state) {
        LoadState(self.compressor, self.mutex, state);
      });
}

// A property's example: the call after "sparfuse.CLASS", and its output.
struct Example {
  const char* call;
  const char* printed;
};

// Binds the properties name, seed, options, paper, deviations and descriptor, with an example of
// each. title: the class's name; kind: the word of the documentation for its registered part.
template <class Object>
void BindDescription(pybind11::class_<Object>& type, const std::string& title,
                     const std::string& kind, const std::array<Example, 6>& examples) {
  const Example* example = examples.data();
  const auto property = [&](const char* name, const std::string& meaning, const auto& get) {
    const std::string text = meaning + "\n\n>>> import sparfuse\n>>> sparfuse." + title +
                             example->call + "\n" + example->printed + "\n";
    type.def_property_readonly(
        name, [get](const Object& self) { return get(*self.configured); }, text.c_str());
    ++example;
  };
  const auto described = [](const char* key) {
    return [key](const auto& made) { return pybind11::object(made.descriptor[key]); };
  };
  property("name", "The " + kind + "'s own name, also where an alias found it.", described("name"));
  property("seed", "The seed of the random numbers.", [](const auto& made) { return made.seed; });
  property("options", "All options with their values, defaults included.",
           [](const auto& made) { return pybind11::dict(made.options.attr("copy")()); });
  property("paper", "The paper that the " + kind + " is from.", described("paper"));
  property("deviations", "The differences from the paper or its code; \"\" if none is known.",
           described("deviations"));
  property("descriptor", "This " + kind + "'s entry of list_" + kind + "s().",
           [](const auto& made) { return pybind11::dict(made.descriptor.attr("copy")()); });
}

// The coding of values that is called "f16" or "f32". Throws Error{kConfig} for another.
ValueCoding ReadValueCoding(const std::string& values);

}  // namespace sparfuse::python
