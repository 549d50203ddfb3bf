// Puts numbers into words: value, unit and interval, the same in tables, reports, comparisons and
// sites.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// Marks a missing value.
inline constexpr const char* kNone = "–";

// Three significant digits, thin spaces between thousands, seconds and bytes scaled: "12.3 ms".
std::string Quantity(double value, std::string_view unit);
// The same in the scale of `like`, as all values of a column are.
std::string Quantity(double value, std::string_view unit, double like);

// The text after an interval's value: " ± 2.1 %", or " [310, 420]" in the value's scale if the
// interval is lopsided or longer than half the value; "" without ends. Precondition: the value is
// above 0.
std::string SpreadText(const Interval& interval, std::string_view unit);
// Both: "3 412 images/s ± 2.1 %".
std::string IntervalText(const Interval& interval, std::string_view unit);
std::string IntervalText(const Interval& interval, std::string_view unit, double like);

// "1.31x [1.27, 1.35]", without the ends if one block leaves none; kNone for nothing.
std::string RatioText(const std::optional<Interval>& ratio);
// "1.31x"
std::string RatioText(double ratio);

// A difference relative to its base: "+2.5 %"; a size, as an error is: "2.5 %".
std::string ChangeText(double change);
std::string PercentText(double size);

// For figures and programs: {value, low, high, n}. low and high are null if there is only one
// block. Null without an interval. The functions below add "text", the form of tables.
nlohmann::json IntervalJson(const std::optional<Interval>& interval);
nlohmann::json IntervalJson(const std::optional<Interval>& interval, std::string_view unit);
nlohmann::json RatioJson(const std::optional<Interval>& ratio);
// {block: value}
nlohmann::json ByBlockJson(const std::map<int, double>& values);

// The value, or null.
template <class Value>
nlohmann::json OrNull(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace sparfuse::harness
