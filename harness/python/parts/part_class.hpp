// Loads a class of a Python file that is a part of methods, and reads its attributes.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/options.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/python/gil.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/part_call.hpp"

namespace sparfuse::python {

using harness::PartSource;

// The last line of Python's report of an error, and its place: "ValueError: no good (FILE.py, line
// 7)". The caller holds the GIL.
std::string LastLine(const pybind11::error_already_set& error);

// A parameter that a callable takes as a keyword, with its default if it has one.
struct Keyword {
  std::string name;
  std::optional<pybind11::object> fallback;
};

// In order. takes_any: set to whether it takes **keywords. The caller holds the GIL. Throws the
// error that inspect.signature raises.
std::vector<Keyword> KeywordsOf(const pybind11::object& callable, bool* takes_any = nullptr);

class PartClass {
 public:
  // Runs the file's text. Checks the attribute `kind` if the class has it, each of `methods`
  // (written as "plan(layout, given)"), and KeepsMemory. The caller holds the GIL. Throws
  // Error{kConfig} naming file, class and the expected form.
  PartClass(PartSource source, const std::vector<std::string>& methods);

  const PartSource& source() const { return source_; }
  const pybind11::object& type() const { return type_; }
  // "planner "python:FILE.py:Class"": how errors begin.
  std::string Who() const;
  [[noreturn]] void Refuse(const std::string& what) const;

  // Attributes of the class. Need the GIL. Throw Error{kConfig} for one of another type. A text is
  // "" if there is none, and lives as long as this object.
  const std::string& Text(const char* attribute);
  bool Flag(const char* attribute, bool fallback) const;
  // The keywords of the constructor except "seed". Throws Error{kConfig} for a keyword whose
  // default is missing or cannot be an option.
  const std::vector<OptionSpec>& options() const;

  // An object of the class. seed: for a constructor that takes one. Takes the GIL. Throws
  // Error{kConfig} with the error that the constructor raises.
  KeptObject Make(const Options& resolved, std::optional<std::uint64_t> seed = {}) const;

  // The memory of an object that Make returned. The caller holds the GIL.
  PartMemory MemoryOf(const KeptObject& object) const { return {source_.kind, Who(), object}; }

 private:
  void ReadOptions();

  PartSource source_;
  pybind11::object type_;
  std::map<std::string, std::string> texts_;  // by attribute
  std::vector<OptionSpec> options_;
  std::string no_option_;  // a keyword without such a default
  bool takes_seed_ = false;
};

// Loads a class that lives as long as the program, as does the descriptor that `describe` makes of
// it.
template <class Descriptor>
const Descriptor& KeepPart(PartSource source, const std::vector<std::string>& methods,
                           Descriptor (*describe)(PartClass& part)) {
  struct Kept {
    PartClass part;
    Descriptor descriptor;
  };
  auto kept = std::make_unique<Kept>(Kept{PartClass(std::move(source), methods), {}});
  kept->descriptor = describe(kept->part);
  return kept.release()->descriptor;
}

// Runs `call` with the GIL, as a RunningCall. An error of Python is thrown as Error{kConfig}
// that names the class, the call with its tensor or step, and the error's last line.
class PartCall {
 public:
  PartCall(const PartClass& part, std::string called) : part_(part), called_(std::move(called)) {}

  template <class Call>
  auto operator()(const Call& call) const;

  // Throws that the returned value has the wrong form.
  [[noreturn]] void Returned(const std::string& what) const {
    part_.Refuse(called_ + " returned " + what);
  }

 private:
  [[noreturn]] void Raised(const pybind11::error_already_set& error) const;

  const PartClass& part_;
  std::string called_;
};

template <class Call>
auto PartCall::operator()(const Call& call) const {
  const RunningCall running(part_.source().shown, called_);
  try {
    return call();
  } catch (const pybind11::error_already_set& error) {
    Raised(error);
  }
}

}  // namespace sparfuse::python
