#include "harness/records/options_json.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

Options OptionsFromJson(std::string_view owner, const json& table) {
  Options options;
  for (const auto& [key, value] : table.items()) {
    if (value.is_boolean()) {
      options[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      options[key] = value.get<std::int64_t>();
    } else if (value.is_number_float()) {
      options[key] = value.get<double>();
    } else if (value.is_string()) {
      options[key] = value.get<std::string>();
    } else {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{}: {} = {}: expected true or false, a number or a string", owner,
                                 key, Shown(value)));
    }
  }
  return options;
}

json OptionsToJson(const Options& options) {
  json table = json::object();
  for (const auto& [key, value] : options) {
    std::visit([&, &name = key](const auto& v) { table[name] = v; }, value);
  }
  return table;
}

}  // namespace sparfuse::harness
