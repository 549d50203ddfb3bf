#include "harness/report/tables/csv.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::ordered_json;

std::string Field(const ordered_json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

}  // namespace

std::string CsvOf(const ordered_json& columns, const std::vector<ordered_json>& rows) {
  std::string csv;
  const auto add_line = [&](const auto& field_of) {
    std::string line;
    for (const auto& [key, unused] : columns.items())
      line += (line.empty() ? "" : ",") + Field(field_of(key));
    csv += line + "\n";
  };
  add_line([](const std::string& key) { return ordered_json(key); });
  for (const ordered_json& row : rows)
    add_line([&](const std::string& key) { return row.at(key); });
  return csv;
}

}  // namespace sparfuse::harness
