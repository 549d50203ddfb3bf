#include "harness/files/range.hpp"

#include <fmt/format.h>

namespace sparfuse::harness {

std::string Text(Range range) { return fmt::format("{} to {}", range.least, range.most); }

std::string WhatIsWrongWithInteger(const nlohmann::json& value, Range range) {
  const bool good = value.is_number_integer() && range.Has(value.get<double>());
  return good ? "" : "an integer from " + Text(range);
}

std::string WhatIsWrongWithNumber(const nlohmann::json& value, Range range) {
  return value.is_number() && range.Has(value.get<double>()) ? "" : "a number from " + Text(range);
}

}  // namespace sparfuse::harness
