// Writes flat rows as comma-separated values (RFC 4180, with line feeds).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sparfuse::harness {

// A line of the keys of `columns`, in its order, and one a row, each of which has them; null gives
// an empty field.
std::string CsvOf(const nlohmann::ordered_json& columns,
                  const std::vector<nlohmann::ordered_json>& rows);

}  // namespace sparfuse::harness
