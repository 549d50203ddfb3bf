#include "harness/published/published.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::string_view kColumns[] = {
    "paper",      "artifact", "workload", "model", "dataset", "workers", "network",   "method",
    "sparsifier", "density",  "metric",   "value", "unit",    "source",  "confidence"};

// Comma-separated values with quotes doubled inside quoted fields (RFC 4180).
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool AtEnd() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  std::vector<std::string> Record() {
    record_line_ = line_;
    std::vector<std::string> fields;
    do fields.push_back(Field());
    while (Take(','));
    Take('\r');
    if (!AtEnd() && !Take('\n')) Fail("expected a comma or the end of the line");
    return fields;
  }

  [[noreturn]] void Fail(const std::string& what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{}:{}: {}", name_, record_line_, what));
  }

 private:
  bool Take(char wanted) {
    if (AtEnd() || text_[at_] != wanted) return false;
    if (wanted == '\n') ++line_;
    ++at_;
    return true;
  }

  std::string Field() {
    std::string field;
    if (!Take('"')) {
      while (!AtEnd() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
        field += text_[at_++];
      return field;
    }
    while (true) {
      if (AtEnd()) Fail("a quoted field does not end");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_++];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += '"';
        at_ += 2;
      } else {
        ++at_;
        return field;
      }
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1;
  int record_line_ = 1;
};

std::optional<double> NumberOf(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

}  // namespace

std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name) {
  CsvReader reader(text, name);
  if (const auto header = reader.Record();
      !std::equal(header.begin(), header.end(), std::begin(kColumns), std::end(kColumns))) {
    reader.Fail(
        fmt::format("columns {}: expected {}", fmt::join(header, ","), fmt::join(kColumns, ",")));
  }
  std::vector<PublishedNumber> rows;
  while (!reader.AtEnd()) {
    std::vector<std::string> fields = reader.Record();
    if (fields.size() != std::size(kColumns)) {
      reader.Fail(fmt::format("{} fields: expected {}", fields.size(), std::size(kColumns)));
    }
    PublishedNumber row;
    std::string* const texts[] = {&row.paper,      &row.artifact, &row.workload,  &row.model,
                                  &row.dataset,    &row.workers,  &row.network,   &row.method,
                                  &row.sparsifier, &row.density,  &row.metric,    &row.stated,
                                  &row.unit,       &row.source,   &row.confidence};
    for (std::size_t i = 0; i < fields.size(); ++i) *texts[i] = std::move(fields[i]);
    if (row.stated.empty())
      reader.Fail("value is empty: expected a number, or what the paper says");
    constexpr std::string_view kBetween = " +- ";
    const std::string_view stated = row.stated;
    const std::size_t mean = stated.find(kBetween);
    row.value = NumberOf(stated.substr(0, mean));
    if (mean != std::string_view::npos) {
      row.deviation = NumberOf(stated.substr(mean + kBetween.size()));
      if (!row.value || !row.deviation)
        reader.Fail(fmt::format("value \"{}\": expected two numbers beside +-", stated));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<PublishedNumber> ReadPublished(const std::filesystem::path& file) {
  std::string text;
  try {
    text = ReadFile(file);
  } catch (const Error& error) {
    SPARFUSE_THROW(kConfig, error.what());
  }
  return ParsePublished(text, file.string());
}

std::vector<PublishedNumber> ReadAllPublished(const std::filesystem::path& folder) {
  std::vector<PublishedNumber> numbers = ReadPublished(folder / "published-numbers.csv");
  if (const auto more = folder / "ddl-benchmarks.csv"; std::filesystem::exists(more)) {
    for (PublishedNumber& number : ReadPublished(more)) numbers.push_back(std::move(number));
  }
  return numbers;
}

}  // namespace sparfuse::harness
