#include "harness/published/published.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "core/base/error.hpp"
#include "harness/files/csv_reader.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::string_view kColumns[] = {
    "paper",      "artifact", "workload", "model", "dataset", "workers", "network",   "method",
    "sparsifier", "density",  "metric",   "value", "unit",    "source",  "confidence"};

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
