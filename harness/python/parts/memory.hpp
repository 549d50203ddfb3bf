// Saves and restores the memory that an object of a class in Python keeps from step to step.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "harness/python/gil.hpp"

namespace sparfuse::python {

// Whether a class, or an object of it, has state_dict(self) and load_state_dict(self, state). The
// caller holds the GIL. Throws Error{kConfig}, beginning with `who`, if it has only one of them.
bool KeepsMemory(const pybind11::object& of, const std::string& who);

// The memory of one object. The caller of each function holds the GIL. All throw Error{kConfig},
// beginning with `who`, for errors that the methods raise and for a state that is not a dict.
class PartMemory {
 public:
  // kind: "sparsifier", "feedback", ...; who: how errors begin. Throws as KeepsMemory does.
  PartMemory(std::string kind, std::string who, KeptObject object);

  const std::string& kind() const { return kind_; }
  const std::string& who() const { return who_; }
  // Whether the object has the methods. Without them its memory is unknown: it is not saved, and
  // Load refuses.
  bool kept() const { return kept_; }

  // A copy, which the object does not change later.
  pybind11::object Save() const;
  // state: a result of Save; the object gets a copy.
  void Load(const pybind11::object& state) const;

 private:
  template <class Call>
  auto Do(const char* called, const Call& call) const;

  std::string kind_, who_;
  KeptObject object_;
  bool kept_;
};

// A part of a method whose class is in Python.
class HasMemory {
 public:
  virtual ~HasMemory() = default;
  virtual PartMemory Memory() const = 0;
};

// {kind: state} of each part that keeps a memory.
pybind11::dict SaveMemories(const std::vector<PartMemory>& memories);
// Restores the memory of each part that has one from {kind: state}. Throws Error{kConfig} naming a
// part whose state is missing, or that has a state but no methods for it.
void LoadMemories(const std::vector<PartMemory>& memories, const pybind11::dict& states);

}  // namespace sparfuse::python
