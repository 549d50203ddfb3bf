#include "harness/files/columns.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kHeaderAlignment = 64;
constexpr std::size_t kColumnAlignment = 8;

template <class T>
void WriteArray(std::ofstream& out, const std::vector<T>& values) {
  const std::size_t bytes = values.size() * sizeof(T);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(bytes));
  const char padding[kColumnAlignment] = {};
  const std::size_t tail = bytes % kColumnAlignment;
  if (tail != 0) out.write(padding, static_cast<std::streamsize>(kColumnAlignment - tail));
}

}  // namespace

std::size_t Columns::Column::rows() const {
  switch (type) {
    case Type::kF64:
      return f64.size();
    case Type::kI64:
      return i64.size();
    case Type::kString:
      return codes.size();
  }
  return 0;
}

std::size_t Columns::AddColumn(std::string name, Type type, std::string unit) {
  columns_.push_back({std::move(name), type, std::move(unit), {}, {}, {}, {}});
  return columns_.size() - 1;
}

void Columns::Append(std::size_t column, double value) {
  assert(columns_[column].type == Type::kF64);
  columns_[column].f64.push_back(value);
}

void Columns::Append(std::size_t column, std::int64_t value) {
  assert(columns_[column].type == Type::kI64);
  columns_[column].i64.push_back(value);
}

void Columns::Append(std::size_t column, const std::string& value) {
  assert(columns_[column].type == Type::kString);
  auto& strings = columns_[column].strings;
  auto found = std::find(strings.begin(), strings.end(), value);
  if (found == strings.end()) found = strings.insert(strings.end(), value);
  columns_[column].codes.push_back(static_cast<std::uint32_t>(found - strings.begin()));
}

void Columns::Write(const std::filesystem::path& path) const {
  static constexpr const char* kTypes[] = {"f64", "i64", "str"};
  nlohmann::json header = {{"format", "sparfuse-cols-1"},
                           {"rows", columns_.empty() ? 0 : columns_.front().rows()},
                           {"sampling", sampling_},
                           {"columns", nlohmann::json::array()},
                           {"strings", nlohmann::json::object()}};
  for (const Column& column : columns_) {
    assert(column.rows() == columns_.front().rows());
    header["columns"].push_back({{"name", column.name},
                                 {"dtype", kTypes[static_cast<int>(column.type)]},
                                 {"unit", column.unit}});
    if (column.type == Type::kString) header["strings"][column.name] = column.strings;
  }
  std::string line = header.dump();
  while ((line.size() + 1) % kHeaderAlignment != 0) line += ' ';
  line += '\n';

  std::ofstream out(path, std::ios::binary);
  out.write(line.data(), static_cast<std::streamsize>(line.size()));
  for (const Column& column : columns_) {
    switch (column.type) {
      case Type::kF64:
        WriteArray(out, column.f64);
        break;
      case Type::kI64:
        WriteArray(out, column.i64);
        break;
      case Type::kString:
        WriteArray(out, column.codes);
        break;
    }
  }
  out.close();
  if (!out) {
    SPARFUSE_THROW(kData, "cannot write " + path.string() + ": " + std::strerror(errno));
  }
}

}  // namespace sparfuse::harness
