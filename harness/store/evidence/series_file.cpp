#include "harness/store/evidence/series_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "harness/files/plain_text.hpp"
#include "harness/store/step_log.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kPrefix = 10;  // magic, version, length of the header
constexpr std::uint64_t kMostRows = 1'000'000'000'000;
constexpr std::size_t kLongestColumn = 64;
// Characters of a text. NumPy uses four bytes for each.
constexpr std::uint64_t kWidestText = 4096;

// Bytes of a value of this type; 0 if no trial records such a column.
std::uint64_t WidthOf(const std::string& file, const std::string& column, const std::string& type) {
  if (type == "<f8" || type == "<i8") return 8;
  if (type == "|b1") return 1;
  const bool text =
      file == "spans.npy" && (column == "kind" || column == "lane" || column == "label");
  if (!text || !type.starts_with("<U") || type.size() < 3 || type.size() > 6) return 0;
  std::uint64_t characters = 0;
  const char* end = type.data() + type.size();
  const auto read = std::from_chars(type.data() + 2, end, characters);
  return read.ec == std::errc() && read.ptr == end && characters <= kWidestText ? 4 * characters
                                                                                : 0;
}

bool Skip(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// Removes and returns the text up to the next quote, with the quote; "" if there is none.
std::string TakeQuoted(std::string_view& text) {
  const std::size_t end = text.find('\'');
  if (end == std::string_view::npos || end > kLongestColumn) return "";
  const std::string taken(text.substr(0, end));
  text.remove_prefix(end + 1);
  return taken;
}

bool IsColumnName(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

// Parses "{'descr': [('step', '<i8'), ], 'fortran_order': False, 'shape': (3,), }   \n". Returns
// whether the header has this form, apart from the types. It works by character, because a header
// has up to 64 KiB and may come from anybody.
bool ParseHeader(std::string_view text, SeriesHeader& header) {
  if (!Skip(text, "{'descr': [")) return false;
  while (Skip(text, "('")) {
    SeriesColumn& column = header.columns.emplace_back();
    column.name = TakeQuoted(text);
    if (!IsColumnName(column.name) || !Skip(text, ", '")) return false;
    column.type = TakeQuoted(text);
    if (column.type.empty() || !Skip(text, "), ")) return false;
  }
  if (header.columns.empty() || !Skip(text, "], 'fortran_order': False, 'shape': (")) return false;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), header.rows);
  if (read.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (!Skip(text, ",), }") || !text.ends_with('\n')) return false;
  text.remove_suffix(1);
  return text.find_first_not_of(' ') == std::string_view::npos;
}

// Checks that each text is filled up with zeros, as NumPy does.
bool HasPlainTexts(std::string_view bytes, const SeriesHeader& header, const SeriesColumn& column) {
  const std::uint64_t width = WidthOf("spans.npy", column.name, column.type);
  for (std::uint64_t row = 0; row < header.rows; ++row) {
    const char* at = bytes.data() + header.begin + row * header.row_bytes + column.offset;
    for (std::uint64_t offset = 0; offset < width; offset += 4) {
      std::uint32_t code = 0;
      std::memcpy(&code, at + offset, 4);
      if (code != 0 && !IsPlain(code)) return false;
    }
  }
  return true;
}

}  // namespace

const std::set<std::string>& SeriesFiles() {
  static const std::set<std::string> kFiles = {"evaluations.npy", "spans.npy", "steps.npy"};
  return kFiles;
}

const SeriesColumn* SeriesHeader::Find(std::string_view name) const {
  const auto found = std::ranges::find(columns, name, &SeriesColumn::name);
  return found == columns.end() ? nullptr : &*found;
}

std::string WhatIsWrongWithSeries(const std::string& name, std::string_view bytes,
                                  SeriesHeader* header) {
  constexpr std::string_view kMagic("\x93NUMPY\1\0", 8);
  if (bytes.size() < kPrefix || !bytes.starts_with(kMagic)) return "no NumPy file of format 1.0";
  const std::size_t length =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  if (bytes.size() < kPrefix + length) return "its header is cut off";
  SeriesHeader read;
  if (!ParseHeader(bytes.substr(kPrefix, length), read)) return "a header that no trial writes";
  for (SeriesColumn& column : read.columns) {
    const std::uint64_t width = WidthOf(name, column.name, column.type);
    if (width == 0)
      return fmt::format("column {} of type {}: expected numbers", column.name, column.type);
    column.offset = read.row_bytes;
    read.row_bytes += width;
  }
  read.begin = kPrefix + length;
  const std::uint64_t left = bytes.size() - read.begin;
  const bool fits =
      read.rows == 0 || (read.rows <= kMostRows && read.row_bytes <= left / read.rows);
  if (!fits || left != read.rows * read.row_bytes) return "its size does not fit its rows";
  for (const SeriesColumn& column : read.columns) {
    if (column.type.starts_with("<U") && !HasPlainTexts(bytes, read, column))
      return fmt::format("column {}: expected texts without control characters", column.name);
  }
  if (header != nullptr) *header = std::move(read);
  return "";
}

double NumberIn(std::string_view bytes, const SeriesHeader& header, const SeriesColumn& column,
                std::uint64_t row) {
  const char* at = bytes.data() + header.begin + row * header.row_bytes + column.offset;
  if (column.type == "|b1") return *at != 0 ? 1 : 0;
  if (column.type == "<i8") {
    std::int64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  }
  double value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

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
    const double begin = series.Value("begin_seconds", row);
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
