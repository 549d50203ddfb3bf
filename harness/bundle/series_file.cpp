#include "harness/bundle/series_file.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <regex>

namespace sparfuse::harness {
namespace {

constexpr std::size_t kPrefix = 10;  // magic, version, length of the header
constexpr std::uint64_t kMostRows = 1'000'000'000'000;
// Characters of a text; NumPy gives each four bytes.
constexpr std::uint64_t kWidestText = 4096;

// Bytes of a value of this type; 0 where no trial records such a column.
std::uint64_t WidthOf(const std::string& file, const std::string& column, const std::string& type) {
  if (type == "<f8" || type == "<i8") return 8;
  if (type == "|b1") return 1;
  const bool text =
      file == "spans.npy" && (column == "kind" || column == "lane" || column == "label");
  if (!text || !type.starts_with("<U") || type.size() > 6) return 0;
  const auto characters = std::stoull(type.substr(2));
  return characters <= kWidestText ? 4 * characters : 0;
}

}  // namespace

const std::set<std::string>& SeriesFiles() {
  static const std::set<std::string> kFiles = {"evaluations.npy", "spans.npy", "steps.npy"};
  return kFiles;
}

std::string WhatIsWrongWithSeries(const std::string& name, std::string_view bytes) {
  static const std::regex kHeader(
      R"(\{'descr': \[((?:\('[a-z_]{1,64}', '(?:<f8|<i8|\|b1|<U[0-9]{1,4})'\), )+)\], 'fortran_order': False, 'shape': \(([0-9]{1,12}),\), \} *\n)");
  static const std::regex kColumn(R"(\('([a-z_]+)', '([^']+)'\), )");
  constexpr std::string_view kMagic("\x93NUMPY\1\0", 8);
  if (bytes.size() < kPrefix || !bytes.starts_with(kMagic)) return "no NumPy file of format 1.0";
  const std::size_t length =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  if (bytes.size() < kPrefix + length) return "its header is cut off";
  const std::string header(bytes.substr(kPrefix, length));
  std::smatch found;
  if (!std::regex_match(header, found, kHeader)) return "a header that no trial writes";
  const std::string columns = found[1];
  std::uint64_t record = 0;
  for (std::sregex_iterator at(columns.begin(), columns.end(), kColumn), end; at != end; ++at) {
    const std::uint64_t width = WidthOf(name, (*at)[1], (*at)[2]);
    if (width == 0) {
      return fmt::format("column {} of type {}: expected numbers", (*at)[1].str(), (*at)[2].str());
    }
    record += width;
  }
  const std::uint64_t rows = std::stoull(found[2]);
  if (rows > kMostRows || bytes.size() - kPrefix - length != rows * record)
    return "other bytes than those of its rows";
  return "";
}

}  // namespace sparfuse::harness
