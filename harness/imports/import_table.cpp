#include "harness/imports/import_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/options.hpp"
#include "harness/files/canonical.hpp"
#include "harness/imports/given_rows.hpp"

namespace sparfuse::harness {
namespace {

struct Column {
  std::string key;
  std::size_t position = 0;
  std::string name;  // in the file
};

// Which columns are read; what the map names and the file lacks is a problem.
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
      problems.push_back(fmt::format("{} = \"{}\": {} has no such column{}", given.where,
                                     given.text, name, Suggestion(given.text, header)));
    }
  }
  for (const ImportKey& key : ResultKeys()) {
    const std::string own(key.name);
    const std::size_t at = find(own);
    if (at < header.size() && !map.columns.contains(own) && !map.values.contains(own))
      columns.push_back({own, at, own});
  }
  // Said once, and not in every row.
  for (const char* key :
       {"source", "system", "workload", "method", "workers", "metric", "value", "unit"}) {
    const bool there =
        map.values.contains(key) || map.columns.contains(key) || find(key) < header.size();
    if (there) continue;
    problems.push_back(
        fmt::format("{}:1: no column \"{}\" among {}: expected one, --column {}=NAME{}", name, key,
                    fmt::join(header, ", "), key,
                    std::string_view(key) == "value" ? "" : fmt::format(" or --set {}=...", key)));
  }
  return columns;
}

}  // namespace

std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread) {
  GivenRows rows(text, name);
  const std::vector<std::string>& header = rows.header();
  Problems problems;
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (std::ranges::count(header, header[i]) > 1 &&
        std::ranges::find(header, header[i]) == header.begin() + static_cast<long>(i))
      problems.push_back(fmt::format("{}:1: two columns \"{}\": expected one", name, header[i]));
  }
  const std::vector<Column> columns = ColumnsOf(header, name, map, problems);
  ThrowProblems(problems);
  for (std::size_t i = 0; i < header.size() && unread != nullptr; ++i) {
    if (std::ranges::find(columns, i, &Column::position) == columns.end())
      unread->push_back(header[i]);
  }
  std::vector<ImportedResult> results;
  std::map<std::tuple<std::string, std::string, int>, std::string> seen;  // where, by identity
  while (const auto row = rows.Next(problems)) {
    const auto& [where, fields] = *row;
    GivenValues given(where, problems);
    for (const auto& [key, value] : map.values) given.Set(key, value);
    for (const Column& column : columns) {
      given.Set(column.key, {std::string(Trimmed(fields[column.position])),
                             fmt::format("{}: {}", where, column.name)});
    }
    const auto result = ResultOf(given, map, catalog, problems);
    if (!result) continue;
    CheckStorable(*result, problems);
    const auto [first, is_new] = seen.try_emplace(
        {ConfigHash(ConfigOf(*result)), HashOf(SystemOf(result->setting)), result->setting.run},
        where);
    if (!is_new) {
      problems.push_back(
          fmt::format("{}: {}: expected it once, or each with a `run` of its own: "
                      "{} has it",
                      where, TitleOf(*result), first->second));
      continue;
    }
    results.push_back(*result);
  }
  if (results.empty() && problems.empty())
    problems.push_back(fmt::format("{}: no rows: expected one a result", name));
  ThrowProblems(problems);
  return results;
}

}  // namespace sparfuse::harness
