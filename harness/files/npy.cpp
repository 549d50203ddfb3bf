#include "harness/files/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

static_assert(std::endian::native == std::endian::little, "dtypes say little-endian");

constexpr std::size_t kAlignment = 64;  // records begin at a multiple of this
constexpr std::size_t kPrefix = 10;     // magic, version, length of the header

std::size_t LongestText(const std::vector<std::string>& texts) {
  std::size_t longest = 1;  // readers disagree on fields of width 0
  for (const auto& text : texts) longest = std::max(longest, text.size());
  return longest;
}

std::string DtypeOf(const std::vector<double>&) { return "<f8"; }
std::string DtypeOf(const std::vector<std::int64_t>&) { return "<i8"; }
std::string DtypeOf(const std::vector<bool>&) { return "|b1"; }
std::string DtypeOf(const std::vector<std::string>& texts) {
  return fmt::format("<U{}", LongestText(texts));
}

template <class T>
void AppendBytes(std::string& record, const T& value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  record.append(bytes, sizeof(T));
}

// Appends one value of a column to the records, and holds the column's width.
struct Field {
  explicit Field(const NpyTable::Values& column) : values(&column) {
    if (const auto* texts = std::get_if<std::vector<std::string>>(&column)) {
      width = LongestText(*texts);
    }
  }
  void Append(std::string& records, std::size_t row) const {
    std::visit([&](const auto& column) { AppendValue(records, column[row]); }, *values);
  }
  void AppendValue(std::string& records, double value) const { AppendBytes(records, value); }
  void AppendValue(std::string& records, std::int64_t value) const { AppendBytes(records, value); }
  void AppendValue(std::string& records, bool value) const { records += value ? '\1' : '\0'; }
  void AppendValue(std::string& records, const std::string& text) const {
    for (const char c : text) {
      const auto code = static_cast<unsigned char>(c);
      AppendBytes(records, static_cast<std::uint32_t>(code < 0x80 ? code : '?'));
    }
    records.append((width - text.size()) * sizeof(std::uint32_t), '\0');
  }

  const NpyTable::Values* values;
  std::size_t width = 0;  // width of text
};

std::size_t SizeOf(const NpyTable::Values& values) {
  return std::visit([](const auto& column) { return column.size(); }, values);
}

}  // namespace

void NpyTable::AddColumn(std::string name, std::string unit, Values values) {
  assert(columns_.empty() || SizeOf(values) == rows());
  columns_.push_back({std::move(name), std::move(unit), std::move(values)});
}

std::size_t NpyTable::rows() const {
  return columns_.empty() ? 0 : SizeOf(columns_.front().values);
}

std::string NpyTable::Header() const {
  std::string fields;
  for (const Column& column : columns_) {
    fields +=
        fmt::format("('{}', '{}'), ", column.name,
                    std::visit([](const auto& values) { return DtypeOf(values); }, column.values));
  }
  std::string header =
      fmt::format("{{'descr': [{}], 'fortran_order': False, 'shape': ({},), }}", fields, rows());
  while ((kPrefix + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  std::string prefix = "\x93NUMPY\1";
  prefix += '\0';
  AppendBytes(prefix, static_cast<std::uint16_t>(header.size()));
  return prefix + header;
}

void NpyTable::Write(const std::filesystem::path& path) const {
  std::vector<Field> fields;
  for (const Column& column : columns_) fields.emplace_back(column.values);
  std::string bytes = Header();
  for (std::size_t row = 0; row < rows(); ++row) {
    for (const Field& field : fields) field.Append(bytes, row);
  }
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    SPARFUSE_THROW(kData, "cannot write " + path.string() + ": " + std::strerror(errno));
  }
}

std::map<std::string, std::string> NpyTable::Units() const {
  std::map<std::string, std::string> units;
  for (const Column& column : columns_) units[column.name] = column.unit;
  return units;
}

}  // namespace sparfuse::harness
