// Holds numbers in files to ranges: every error names both ends, so that nobody has to guess.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sparfuse::harness {

// Both ends belong to it. Of integers: whole numbers that a double holds exactly.
struct Range {
  double least = 0;
  double most = 0;

  bool Has(double value) const { return value >= least && value <= most; }  // false for NaN
};

// "1 to 65536"
std::string Text(Range range);

// `value`: as a file gives it. "" if it is an integer in the range, else the expected form: "an
// integer from 1 to 64".
std::string WhatIsWrongWithInteger(const nlohmann::json& value, Range range);
// The same for a number: "a number from 0.001 to 60".
std::string WhatIsWrongWithNumber(const nlohmann::json& value, Range range);

}  // namespace sparfuse::harness
