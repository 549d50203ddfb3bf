#include "harness/store/evidence/open_series.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "harness/store/step_log.hpp"

namespace sparfuse::harness {
namespace {

// A loss and an evaluated metric may have any sign. All other columns are times, counts, norms or
// shares.
bool MayBeNegative(std::string_view column) { return column == "loss" || column == "metric"; }

bool HasTexts(const SeriesColumn& column) { return column.type.starts_with("<U"); }

// The unit of a column; nothing if no program of this schema writes the column.
std::optional<std::string> UnitOf(const std::string& file, const std::string& column,
                                  const std::string& metric_unit) {
  if (file == "steps.npy") return UnitOfStepColumn(column);
  if (column == "metric") return metric_unit.empty() ? std::nullopt : std::optional(metric_unit);
  static const std::map<std::string_view, std::string> kUnits = {
      {"step", ""},
      {"rank", ""},
      {"epoch", "epochs"},
      {"samples", "samples"},
      {"seconds", "seconds"},
      {"seconds_with_evaluation", "seconds"},
      {"begin_seconds", "seconds"},
      {"end_seconds", "seconds"},
      {"learning_rate", ""},
      {"loss", "nats"},
      {"bytes", "bytes"},
      {"kind", ""},
      {"lane", ""},
      {"label", ""},
  };
  const auto found = kUnits.find(column);
  return found == kUnits.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::optional<double> OpenSeries::Number(std::string_view column, std::uint64_t row) const {
  const SeriesColumn* of = header.Find(column);
  if (of == nullptr || HasTexts(*of)) return std::nullopt;
  return NumberIn(bytes, header, *of, row);
}

std::string OpenSeries::Text(std::string_view column, std::uint64_t row) const {
  const SeriesColumn& of = *header.Find(column);
  std::size_t characters = 0;
  std::from_chars(of.type.data() + 2, of.type.data() + of.type.size(), characters);
  const char* at = bytes.data() + header.begin + row * header.row_bytes + of.offset;
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    std::uint32_t code = 0;
    std::memcpy(&code, at + 4 * i, sizeof code);
    if (code == 0) break;
    text += code < 0x80 ? static_cast<char>(code) : '?';
  }
  return text;
}

OpenSeriesByFile OpenAll(const std::map<std::string, std::string>& files) {
  OpenSeriesByFile opened;
  for (const std::string& name : SeriesFiles()) {
    const auto found = files.find(name);
    OpenSeries open;
    if (found == files.end() || !WhatIsWrongWithSeries(name, found->second, &open.header).empty())
      continue;
    open.bytes = found->second;
    opened.emplace(name, std::move(open));
  }
  return opened;
}

std::string WhatIsImpossible(const std::string& file, const OpenSeries& series) {
  for (const SeriesColumn& column : series.header.columns) {
    if (HasTexts(column)) continue;
    const bool any_sign = MayBeNegative(column.name);
    for (std::uint64_t row = 0; row < series.header.rows; ++row) {
      const double number = NumberIn(series.bytes, series.header, column, row);
      if (std::isfinite(number) && (any_sign || number >= 0)) continue;
      return fmt::format("{}: {} = {} in row {}: expected a {}number", file, column.name, number,
                         row, any_sign ? "finite " : "finite, not negative ");
    }
  }
  if (file != "spans.npy") return "";
  for (std::uint64_t row = 0; row < series.header.rows; ++row) {
    const double begin = series.Number("begin_seconds", row).value_or(0);
    const double end = series.Number("end_seconds", row).value_or(begin);
    if (end >= begin) continue;
    return fmt::format("{}: end_seconds = {} in row {}: expected at least begin_seconds, {}", file,
                       end, row, begin);
  }
  return "";
}

std::string WhatIsWrongWithUnits(const std::string& file, const Series& stated,
                                 const std::string& metric_unit) {
  for (const auto& [column, unit] : stated.units) {
    const std::optional<std::string> expected = UnitOf(file, column, metric_unit);
    if (!expected || unit == *expected) continue;
    return fmt::format("series.{}.units.{}: \"{}\": expected \"{}\"", file, column, unit,
                       *expected);
  }
  return "";
}

}  // namespace sparfuse::harness
