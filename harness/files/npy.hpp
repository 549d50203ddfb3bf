// Writes series as NumPy files (*.npy, format 1.0): numpy.load opens them without code of ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sparfuse::harness {

// Columns of equal length that become one structured array, a record a row.
class NpyTable {
 public:
  // Little-endian f8, i8, b1 and, of text, U as wide as the longest value. Text is ASCII; other
  // bytes become '?'.
  using Values = std::variant<std::vector<double>, std::vector<std::int64_t>, std::vector<bool>,
                              std::vector<std::string>>;

  // `sampling` says which rows the table has: "every step of every rank".
  explicit NpyTable(std::string sampling) : sampling_(std::move(sampling)) {}

  // unit: "seconds", "bytes"; "" for a pure number, an index or a name. Preconditions: the name is
  // an identifier; all columns have the same number of values.
  void AddColumn(std::string name, std::string unit, Values values);

  // Writes the file whole. Throws Error{kData} naming the path and the reason (say, no space left).
  void Write(const std::filesystem::path& path) const;

  std::size_t rows() const;
  // Facts that the file itself cannot hold.
  const std::string& sampling() const noexcept { return sampling_; }
  std::map<std::string, std::string> Units() const;  // by column

 private:
  struct Column {
    std::string name, unit;
    Values values;
  };
  std::string Header() const;

  std::string sampling_;
  std::vector<Column> columns_;
};

}  // namespace sparfuse::harness
