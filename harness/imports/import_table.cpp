// Reads tables of imported results: comma-separated values, one result in each row or cell.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/base/options.hpp"
#include "harness/files/log_text.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/imports/imports.hpp"

namespace sparfuse::harness {
namespace {

struct Column {
  std::string key;
  std::size_t position = 0;
  std::string name;  // name in the file
};

// The columns that are read. A column that the map names and the file lacks is a problem.
std::vector<Column> ColumnsOf(const std::vector<std::string>& header, const std::string& name,
                              const ImportMap& map, Problems& problems) {
  std::vector<Column> columns;
  const auto find = [&](std::string_view wanted) {
    return static_cast<std::size_t>(std::ranges::find(header, wanted) - header.begin());
  };
  for (const auto& [key, given] : map.columns) {
    if (const std::size_t at = find(given.text); at < header.size()) {
      columns.push_back({key, at, given.text});
    } else {
      problems.push_back(fmt::format(
          "{} = \"{}\": {} has no such column{}{}", given.where, given.text, name,
          Suggestion(given.text, header),
          header.front().starts_with('#') ? "; leave_out_lines = ['^#'] leaves comments out" : ""));
    }
  }
  const auto spread = [&](std::string_view key) {
    return !map.value_columns.empty() && (key == "value" || key == map.columns_are);
  };
  for (const ImportKey& key : ResultKeys()) {
    const std::string own(key.name);
    const std::size_t at = find(own);
    if (at < header.size() && !spread(own) && !map.columns.contains(own) &&
        !map.values.contains(own))
      columns.push_back({own, at, own});
  }
  // A missing key is reported once, and not in every row.
  for (const char* key :
       {"source", "system", "workload", "method", "workers", "metric", "value", "unit"}) {
    const bool there = map.values.contains(key) || map.columns.contains(key) || spread(key) ||
                       find(key) < header.size();
    if (there) continue;
    problems.push_back(
        fmt::format("{}:1: no column \"{}\" among {}: expected one, --column {}=NAME{}", name, key,
                    fmt::join(header, ", "), key,
                    std::string_view(key) == "value" ? "" : fmt::format(" or --set {}=...", key)));
  }
  return columns;
}

// The columns of values: one, or one for each method (or another key) that the map lists. A listed
// column that the file lacks is a problem.
std::vector<Column> ValueColumnsOf(const std::vector<std::string>& header, const std::string& name,
                                   const ImportMap& map, const std::vector<Column>& columns,
                                   Problems& problems) {
  std::vector<Column> values;
  for (const Column& column : columns) {
    if (column.key == "value") values.push_back(column);
  }
  if (map.value_columns.empty()) return values;
  for (const char* key : {"value", map.columns_are.c_str()}) {
    if (map.columns.contains(key) || map.values.contains(key)) {
      problems.push_back(fmt::format("{}: {} is given besides: expected the columns alone",
                                     map.value_columns.front().where, key));
    }
  }
  for (const GivenText& given : map.value_columns) {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(header, given.text) - header.begin());
    values.push_back({"value", at, given.text});
    if (at < header.size()) continue;
    problems.push_back(fmt::format("{}: \"{}\": {} has no such column{}", given.where, given.text,
                                   name, Suggestion(given.text, header)));
  }
  return values;
}

bool IsText(const std::string& key) {
  constexpr std::string_view kTexts[] = {"source",     "system", "workload", "method",
                                         "sparsifier", "per",    "metric",   "unit"};
  return std::ranges::find(kTexts, key) != std::end(kTexts);
}

// The cell because of which the map leaves out the row; "" if the row is read.
std::string WhyLeftOut(const std::vector<std::string>& fields,
                       const std::vector<std::string>& header, const ImportMap& map) {
  for (const auto& [column, cells] : map.leave_out_rows) {
    const auto at = static_cast<std::size_t>(std::ranges::find(header, column) - header.begin());
    const std::string cell(Trimmed(fields[at]));
    if (std::ranges::find(cells, cell) != cells.end()) return fmt::format("{} = {}", column, cell);
  }
  return "";
}

}  // namespace

std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread,
                                            std::vector<std::string>* notes) {
  const std::string decoded = ImportedText(text, name, map, notes);
  GivenRows rows(decoded, name, map.delimiter);
  const std::vector<std::string>& header = rows.header();
  Problems problems;
  std::map<std::string_view, int> columns_of_name;
  for (const std::string& column : header) {
    if (++columns_of_name[column] == 2)
      problems.push_back(
          fmt::format("{}:1: two columns \"{}\": expected one of this name", name, column));
  }
  std::vector<Column> columns = ColumnsOf(header, name, map, problems);
  const std::vector<Column> value_columns = ValueColumnsOf(header, name, map, columns, problems);
  std::erase_if(columns, [](const Column& column) { return column.key == "value"; });
  for (const auto& [column, cells] : map.leave_out_rows) {
    if (std::ranges::find(header, column) == header.end())
      problems.push_back(fmt::format("leave_out_rows: \"{}\": {} has no such column{}", column,
                                     name, Suggestion(column, header)));
  }
  ThrowProblems(problems);
  for (std::size_t i = 0; i < header.size() && unread != nullptr; ++i) {
    if (std::ranges::find(columns, i, &Column::position) == columns.end() &&
        std::ranges::find(value_columns, i, &Column::position) == value_columns.end())
      unread->push_back(header[i]);
  }
  std::vector<ImportedResult> results;
  std::vector<std::string> left_out;
  std::map<std::tuple<std::string, std::string, int>, std::string> seen;  // place, by identity
  // A result for a cell of values; null for a value that is one for all rows.
  const auto add = [&](const GivenRow& row, const Column* value_column) {
    const auto& [where, fields] = row;
    GivenValues given(where, problems);
    for (const auto& [key, value] : map.values) given.Set(key, value);
    const auto set = [&](const Column& column) {
      const std::string_view cell = Trimmed(fields[column.position]);
      if (std::ranges::find(map.leave_out, cell) != map.leave_out.end()) return false;
      given.Set(column.key, {IsText(column.key) ? std::string(cell) : PlainNumber(cell, map),
                             fmt::format("{}: {}", where, column.name)});
      return true;
    };
    if (value_column != nullptr && !set(*value_column)) {
      left_out.push_back(fmt::format("{} ({} = {})", where, value_column->name,
                                     Trimmed(fields[value_column->position])));
      return;
    }
    for (const Column& column : columns) set(column);
    if (!map.value_columns.empty()) {
      given.Set(map.columns_are,
                {value_column->name, fmt::format("{}: {}", where, map.columns_are)});
    }
    // "75.9%" may repeat the unit.
    if (const GivenText* value = given.Find("value");
        value != nullptr && value->text.ends_with('%') && given.Text("unit") == "%") {
      const std::string_view number =
          std::string_view(value->text).substr(0, value->text.size() - 1);
      given.Set("value", {std::string(Trimmed(number)), value->where});
    }
    const auto result = ResultOf(given, map, catalog, problems);
    if (!result) return;
    const std::optional<Trial> trial = CheckStorable(*result, problems);
    if (!trial) return;
    const auto [first, is_new] =
        seen.try_emplace({trial->config_hash, trial->system_hash, trial->block}, where);
    if (!is_new) {
      problems.push_back(fmt::format(
          "{}: {}: expected this result once, or each with a `run` of its own: {} has it, too",
          where, TitleOf(*result), first->second));
      return;
    }
    results.push_back(*result);
  };
  while (const auto row = rows.Next(problems)) {
    if (const std::string why = WhyLeftOut(row->fields, header, map); !why.empty()) {
      left_out.push_back(fmt::format("{} ({})", row->where, why));
      continue;
    }
    if (value_columns.empty()) add(*row, nullptr);
    for (const Column& column : value_columns) add(*row, &column);
  }
  if (results.empty() && problems.empty())
    problems.push_back(fmt::format("{}: no rows: expected a row for each result", name));
  ThrowProblems(problems);
  if (!left_out.empty() && notes != nullptr)
    notes->push_back(fmt::format("{} {} left out: {}", left_out.size(),
                                 value_columns.size() > 1 ? "rows and cells" : "rows",
                                 fmt::join(left_out, ", ")));
  return results;
}

}  // namespace sparfuse::harness
