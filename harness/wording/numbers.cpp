#include "harness/wording/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sparfuse::harness {
namespace {

constexpr const char* kThin = "\u2009";
// An interval is lopsided if its longer half is this many times the shorter one, unless both round
// to about the same percentage.
constexpr double kLopsided = 1.2;
constexpr double kAboutTheSame = 0.005;
// A longer half, relative to the value, is shown by its end, because "± 300 %" says nothing.
constexpr double kLongestPercentage = 0.5;

std::string Number(double value) {
  if (value == 0) return "0";
  if (std::abs(value) < 1e-4) return fmt::format("{:.2e}", value);
  if (std::abs(value) < 999.5) {
    return fmt::format("{:.{}f}", value,
                       std::max(0, 2 - static_cast<int>(std::floor(std::log10(std::abs(value))))));
  }
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += kThin;
    text += digits[i];
  }
  return text;
}

struct Scale {
  double times = 1, over = 1;
  std::string unit;  // with a leading space; "" for a pure number

  std::string Of(double value) const { return Number(value * times / over); }
};

// The scale in which `value` is readable.
Scale ScaleOf(double value, std::string_view unit) {
  const double size = std::abs(value);
  if (unit == "s" && value != 0 && size < 1e-3) return {1e6, 1, " µs"};
  if (unit == "s" && value != 0 && size < 1) return {1e3, 1, " ms"};
  if (unit == "B") {
    for (const auto& [bytes, name] : {std::pair{1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}}) {
      if (size >= bytes) return {1, bytes, name};
    }
  }
  return {1, 1, unit == "1" ? "" : " " + std::string(unit)};
}

// Below 0.1, two decimals say too little.
std::string RatioNumber(double value) {
  return value < 0.095 ? Number(value) : fmt::format("{:.2f}", value);
}

std::string SpreadIn(const Scale& scale, const Interval& interval) {
  if (!interval.has_bounds()) return "";
  const double above = interval.high / interval.value - 1;
  const double below = 1 - interval.low / interval.value;
  const auto [less, more] = std::minmax(above, below);
  const bool alike = more <= kLopsided * less || more - less <= kAboutTheSame;
  if (alike && more <= kLongestPercentage) return fmt::format(" ± {:.1f} %", 100 * more);
  return fmt::format(" [{}, {}]", scale.Of(interval.low), scale.Of(interval.high));
}

}  // namespace

std::string Quantity(double value, std::string_view unit, double like) {
  const Scale scale = ScaleOf(like, unit);
  return scale.Of(value) + scale.unit;
}

std::string Quantity(double value, std::string_view unit) { return Quantity(value, unit, value); }

std::string SpreadText(const Interval& interval, std::string_view unit) {
  return SpreadIn(ScaleOf(interval.value, unit), interval);
}

std::string IntervalText(const Interval& interval, std::string_view unit, double like) {
  return Quantity(interval.value, unit, like) + SpreadIn(ScaleOf(like, unit), interval);
}

std::string IntervalText(const Interval& interval, std::string_view unit) {
  return IntervalText(interval, unit, interval.value);
}

std::string RatioText(const std::optional<Interval>& ratio) {
  if (!ratio) return kNone;
  if (!ratio->has_bounds()) return RatioText(ratio->value);
  return fmt::format("{} [{}, {}]", RatioText(ratio->value), RatioNumber(ratio->low),
                     RatioNumber(ratio->high));
}

std::string RatioText(double ratio) { return RatioNumber(ratio) + "x"; }

std::string ChangeText(double change) { return fmt::format("{:+.1f} %", 100 * change); }

std::string PercentText(double size) { return fmt::format("{:.1f} %", 100 * size); }

nlohmann::json IntervalJson(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return {{"value", interval->value},
          {"low", interval->has_bounds() ? nlohmann::json(interval->low) : nlohmann::json()},
          {"high", interval->has_bounds() ? nlohmann::json(interval->high) : nlohmann::json()},
          {"n", interval->n}};
}

nlohmann::json IntervalJson(const std::optional<Interval>& interval, std::string_view unit) {
  nlohmann::json written = IntervalJson(interval);
  if (interval) written["text"] = IntervalText(*interval, unit);
  return written;
}

nlohmann::json ByBlockJson(const std::map<int, double>& values) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [block, value] : values) object[std::to_string(block)] = value;
  return object;
}

nlohmann::json RatioJson(const std::optional<Interval>& ratio) {
  nlohmann::json written = IntervalJson(ratio);
  if (ratio) written["text"] = RatioText(ratio);
  return written;
}

}  // namespace sparfuse::harness
