// Reads the file of a method, NAME.toml: a named composition of a strategy, a planner, a
// sparsifier, feedback and a collective. Methods of the tree are embedded in the program; an
// experiment may name a file outside it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/options.hpp"

namespace sparfuse::harness {

struct Method {
  std::string name, title, paper, summary;
  int revision = 0;
  std::string deviations;  // "" or the differences from the paper, one sentence each
  std::string strategy, planner, sparsifier, feedback, collective;
  Options sending;                // of SendingOptions(), as the file gives them
  bool sparsifier_fixed = false;  // an experiment may not choose another sparsifier
  Options strategy_options, planner_options, collective_options;  // as the file gives them
  // [conformance] options: the options with which the tests of the method's laws run, if the small
  // tensors of the tests would leave a part of the method idle.
  Options conformance_options;

  // Sends whole tensors.
  bool dense() const { return sparsifier == "none"; }
  // Whether it sends payloads, which a rank makes of its own gradient, and not sums.
  bool sends_payloads() const {
    return !dense() || sending.contains("payload_dense") || feedback != "none";
  }
};

// `text`: the content of the file at `path`; `name` must be the stem of `path`. The parts that it
// names are checked where the catalog is joined. Throws Error{kConfig} with file and line.
Method ParseMethodFile(std::string_view path, std::string_view text);

// A method of an experiment file is a name, or a path of a method's file: "path/NAME.toml".
bool IsMethodFile(std::string_view method);
// Whether the file at `path` describes a method, well or badly, and no experiment.
bool HasFormOfMethod(const std::filesystem::path& path);
// NAME of either.
std::string MethodNameOf(std::string_view method);
// Whether one of the two is a file, and both have the same name.
bool MeansMethodFile(std::string_view one, std::string_view other);

}  // namespace sparfuse::harness
