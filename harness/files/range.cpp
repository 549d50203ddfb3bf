#include "harness/files/range.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace sparfuse::harness {
namespace {

std::string NumberText(double number) {
  if (number == std::floor(number) && std::abs(number) < 1e18)
    return std::to_string(static_cast<std::int64_t>(number));
  return fmt::format("{}", number);
}

std::string FromTo(const char* what, Range range) {
  return fmt::format("{} from {} to {}", what, NumberText(range.least), NumberText(range.most));
}

}  // namespace

std::string Text(Range range) {
  return fmt::format("{} to {}", NumberText(range.least), NumberText(range.most));
}

std::string WhatIsWrongWithInteger(const nlohmann::json& value, Range range) {
  const bool good = value.is_number_integer() && range.Has(value.get<double>());
  return good ? "" : FromTo("an integer", range);
}

std::string WhatIsWrongWithNumber(const nlohmann::json& value, Range range) {
  return value.is_number() && range.Has(value.get<double>()) ? "" : FromTo("a number", range);
}

}  // namespace sparfuse::harness
