// The file of a method, NAME.toml: a named composition of a strategy, a planner, a sparsifier,
// feedback and a collective.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/options.hpp"

namespace sparfuse::harness {

struct Method {
  std::string name, title, paper, summary;
  int revision = 0;
  std::string deviations;  // "" or what differs from the paper, one sentence each
  std::string strategy, planner, sparsifier, feedback, collective;
  Options sending;                // of SendingOptions(), as the file gives them
  bool sparsifier_fixed = false;  // an experiment may not choose another sparsifier
  nlohmann::json strategy_options = nlohmann::json::object();  // as the file gives them
  nlohmann::json planner_options = nlohmann::json::object();

  // Sends whole tensors.
  bool dense() const { return sparsifier == "none"; }
  // Sends what each rank makes of its own gradient, not sums.
  bool sends_payloads() const { return !dense() || sending.contains("payload_dense"); }
};

// `text`: the content of the file at `path`; `name` must be the stem of `path`. The parts that it
// names are checked where the catalog is joined. Throws Error{kConfig} with file and line.
Method ParseMethodFile(std::string_view path, std::string_view text);

// A table of scalars as options. `owner` begins the Error{kConfig} for any other value.
Options OptionsFromJson(std::string_view owner, const nlohmann::json& table);
nlohmann::json OptionsToJson(const Options& options);

}  // namespace sparfuse::harness
