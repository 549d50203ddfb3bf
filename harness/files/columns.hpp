// Series files (*.cols): one columnar format; harness/README.md says what is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sparfuse::harness {

// Columns of equal length under one header. Append values column by column, row after row.
class Columns {
 public:
  enum class Type { kF64, kI64, kString };

  // `sampling` says which rows are there: "every step".
  explicit Columns(std::string sampling) : sampling_(std::move(sampling)) {}

  // Returns the column's position. unit: "seconds", "bytes", "" for a pure number.
  std::size_t AddColumn(std::string name, Type type, std::string unit);
  void Append(std::size_t column, double value);
  void Append(std::size_t column, std::int64_t value);
  void Append(std::size_t column, const std::string& value);

  // Writes the file whole. Precondition: all columns have the same number of rows.
  // Throws Error{kData} naming the path and the reason (say, no space left).
  void Write(const std::filesystem::path& path) const;

 private:
  struct Column {
    std::string name;
    Type type;
    std::string unit;
    std::vector<double> f64;
    std::vector<std::int64_t> i64;
    std::vector<std::uint32_t> codes;
    std::vector<std::string> strings;
    std::size_t rows() const;
  };
  std::string sampling_;
  std::vector<Column> columns_;
};

}  // namespace sparfuse::harness
