// Turns a part's options into a table of JSON and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/options.hpp"

namespace sparfuse::harness {

// A table of scalars as options. `owner` begins the Error{kConfig} for any other value.
Options OptionsFromJson(std::string_view owner, const nlohmann::json& table);
nlohmann::json OptionsToJson(const Options& options);

}  // namespace sparfuse::harness
