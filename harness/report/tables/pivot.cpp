#include "harness/report/tables/pivot.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/metrics.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Labels = std::vector<std::string>;

const KeyColumn kMethod = {"method", "method"};

std::vector<KeyColumn> AxesOf(const Part& part) {
  std::vector<KeyColumn> axes = {kMethod};
  const std::vector<KeyColumn> keys = KeyColumnsOf(part);
  axes.insert(axes.end(), keys.begin(), keys.end());
  return axes;
}

// The axis of this name, even if no cells of the part differ in it.
std::optional<KeyColumn> FindAxis(const Part& part, const std::string& name) {
  for (const KeyColumn& axis : AxesOf(part)) {
    if (axis.title == name || axis.path == name) return axis;
  }
  const KeyColumn given = {name == "link" ? "link.gbps" : name, name};
  for (const Cell& cell : part.cells) {
    if (cell.json.contains(name) || !KeyValue(cell.json, given).is_null()) return given;
  }
  return std::nullopt;
}

// A value of a cell: a metric, its ratio to the reference, or the number of blocks.
struct Value {
  std::string metric;  // "" for the number of blocks
  bool ratio = false;
  std::size_t column = 0;  // column in the result table

  std::string name() const { return metric.empty() ? "n" : ratio ? "vs " + metric : metric; }
};

// Every value of a part's result table, in its order.
std::vector<Value> ValuesOf(const Part& part, const Table& table,
                            std::span<const std::string> named) {
  std::vector<Value> values;
  for (const MetricColumn& metric : MetricColumnsOf(part, named)) {
    const auto found = std::ranges::find(table.columns, metric.title);
    if (found == table.columns.end()) continue;
    const auto at = static_cast<std::size_t>(found - table.columns.begin());
    values.push_back({metric.metric, false, at});
    if (metric.ratio != nullptr && !part.reference.empty())
      values.push_back({metric.metric, true, at + 1});
  }
  values.push_back({"", false, table.columns.size() - 1});
  return values;
}

// Whether `name` means the value, by its metric or by its heading. The end of a ratio's heading may
// be omitted: "vs", "vs dense" and "vs dense (95 %)".
bool IsCalled(const Value& value, const Table& table, const std::string& name) {
  const std::string& heading = table.columns[value.column];
  if (name == value.name() || name == heading) return true;
  return value.ratio && !name.empty() && heading.starts_with(name + " ");
}

bool IsNumber(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  return std::from_chars(text.data(), end, value).ptr == end && !text.empty();
}

// One part with the requested axes and values.
class Pivot {
 public:
  Pivot(const PartResult& result, const PivotRequest& request, const Catalog& catalog)
      : result_(result),
        request_(request),
        table_(ResultTable(result, catalog, request.values)),
        rows_(Axes(request.rows)),
        columns_(Axes(request.columns)),
        values_(Values()) {
    const Part& part = *result.part;
    for (std::size_t i = 0; i < part.cells.size(); ++i) Place(part.cells[i].json, i);
    for (std::size_t i = 0; i < part.excluded.size(); ++i)
      Place(part.excluded[i].cell, part.cells.size() + i);
  }

  Table Text() const {
    Table pivoted;
    Labels values;
    for (const Value& value : values_) values.push_back(table_.columns[value.column]);
    pivoted.title = fmt::format("{}: {}", table_.title, fmt::join(values, "; "));
    pivoted.caption = table_.caption;
    pivoted.notes = table_.notes;
    for (const KeyColumn& axis : rows_) pivoted.AddColumn(axis.title, 'l');
    for (const Labels& labels : column_order_) pivoted.AddColumn(HeadOf(shown_.at(labels)), 'r');
    for (const Labels& labels : row_order_) {
      std::vector<std::string> row = shown_.at(labels);
      for (const Labels& column : column_order_) {
        const auto cell = places_.find({labels, column});
        row.push_back(cell == places_.end() ? kNone : CellText(cell->second));
      }
      pivoted.AddRow(std::move(row), "");
    }
    return pivoted;
  }

  // The numbers by names of their columns, one object for each row.
  std::vector<ordered_json> Numbers() const {
    std::vector<ordered_json> rows;
    for (const Labels& labels : row_order_) {
      ordered_json row = {{"part", result_.part->id}};
      for (std::size_t axis = 0; axis < rows_.size(); ++axis)
        row[request_.rows[axis]] = labels[axis];
      for (const Labels& column : column_order_) {
        const auto cell = places_.find({labels, column});
        for (const Value& value : values_) {
          row[fmt::format("{} {}", fmt::join(column, " "), value.name())] =
              cell == places_.end() ? ordered_json() : NumberOf(cell->second, value);
        }
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  std::vector<KeyColumn> Axes(const std::vector<std::string>& names) const {
    std::vector<KeyColumn> axes;
    for (const std::string& name : names)
      axes.push_back(FindAxis(*result_.part, name).value_or(KeyColumn{name, name}));
    return axes;
  }

  std::vector<Value> Values() const {
    const std::vector<Value> all = ValuesOf(*result_.part, table_, request_.values);
    if (request_.values.empty()) return {all.front()};
    std::vector<Value> values;
    for (const std::string& name : request_.values) {
      const auto found = std::ranges::find_if(
          all, [&](const Value& value) { return IsCalled(value, table_, name); });
      if (found != all.end()) values.push_back(*found);
    }
    return values.empty() ? std::vector{all.front()} : values;  // the part is of another kind
  }

  // The values of the columns' axes. A bare number is after the name of its axis: "workers 2".
  std::string HeadOf(const Labels& labels) const {
    Labels words;
    for (std::size_t axis = 0; axis < labels.size(); ++axis) {
      words.push_back(IsNumber(labels[axis])
                          ? fmt::format("{} {}", columns_[axis].title, labels[axis])
                          : labels[axis]);
    }
    return fmt::format("{}", fmt::join(words, ", "));
  }

  static Labels LabelsOf(const json& config, const std::vector<KeyColumn>& axes) {
    Labels labels;
    for (const KeyColumn& axis : axes) labels.push_back(KeyText(config, axis));
    return labels;
  }

  const json& ConfigOf(std::size_t row) const {
    const Part& part = *result_.part;
    return row < part.cells.size() ? part.cells[row].json
                                   : part.excluded[row - part.cells.size()].cell;
  }

  // `row`: row of the result table, which lists the cells and then the excluded ones.
  void Place(const json& config, std::size_t row) {
    const Labels across = LabelsOf(config, rows_);
    const Labels down = LabelsOf(config, columns_);
    if (std::ranges::find(row_order_, across) == row_order_.end()) row_order_.push_back(across);
    if (std::ranges::find(column_order_, down) == column_order_.end())
      column_order_.push_back(down);
    Show(across, rows_, row);
    Show(down, columns_, row);
    const auto [place, added] = places_.emplace(std::pair(across, down), row);
    if (!added && row < result_.cells.size()) RefuseTwo(place->second, row);
  }

  // Keeps the labels as the text shows them: a method has the mark of its note.
  void Show(const Labels& labels, const std::vector<KeyColumn>& axes, std::size_t row) {
    Labels& shown = shown_.emplace(labels, labels).first->second;
    const std::string& method = table_.rows[row].front();
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis].path == kMethod.path && method.starts_with(shown[axis] + " ["))
        shown[axis] = method;
    }
  }

  [[noreturn]] void RefuseTwo(std::size_t first, std::size_t second) const {
    std::vector<std::string> apart;
    for (const KeyColumn& axis : AxesOf(*result_.part)) {
      const std::string one = KeyText(ConfigOf(first), axis);
      const std::string other = KeyText(ConfigOf(second), axis);
      if (one != other) apart.push_back(fmt::format("{} ({}, {})", axis.title, one, other));
    }
    SPARFUSE_THROW(
        kConfig,
        fmt::format("--pivot {} {}: two cells of part {} are both at {} and {}: they differ in {}; "
                    "expected that axis among ROWS or COLUMNS",
                    fmt::join(request_.rows, ","), fmt::join(request_.columns, ","),
                    result_.part->id, fmt::join(LabelsOf(ConfigOf(first), rows_), ", "),
                    fmt::join(LabelsOf(ConfigOf(first), columns_), ", "),
                    fmt::join(apart, " and ")));
  }

  std::string CellText(std::size_t row) const {
    if (row >= result_.cells.size() || !result_.cells[row].failure.empty())
      return table_.rows[row][FirstValue()];
    Labels texts;
    bool counted = false;
    for (const Value& value : values_) {
      texts.push_back(table_.rows[row][value.column]);
      counted = counted || value.metric.empty();
    }
    std::string text = fmt::format("{}", fmt::join(texts, "; "));
    const std::string& blocks = table_.rows[row].back();
    if (const std::size_t mark = blocks.find(" ["); mark != std::string::npos && !counted)
      text += blocks.substr(mark);
    return text;
  }

  // The column that explains a missing result.
  std::size_t FirstValue() const { return ValuesOf(*result_.part, table_, {}).front().column; }

  ordered_json NumberOf(std::size_t row, const Value& value) const {
    if (row >= result_.cells.size()) return nullptr;
    const CellResult& cell = result_.cells[row];
    if (value.metric.empty()) return cell.trials.size();
    if (!value.ratio) {
      if (const auto over = cell.Over(value.metric)) return over->value;
      const auto mean = cell.Mean(value.metric);
      return mean ? ordered_json(*mean) : ordered_json();
    }
    const auto reference = result_.ReferenceOf(row);
    if (!reference) return nullptr;
    const auto ratio = RatioOf(cell, result_.cells[*reference], value.metric);
    return ratio ? ordered_json(ratio->value) : ordered_json();
  }

  const PartResult& result_;
  const PivotRequest& request_;
  Table table_;
  std::vector<KeyColumn> rows_, columns_;
  std::vector<Value> values_;
  std::vector<Labels> row_order_, column_order_;  // in the order of the cells
  std::map<Labels, Labels> shown_;                // of a row or a column, with marks of notes
  std::map<std::pair<Labels, Labels>, std::size_t> places_;
};

// Adds `name` to `known` unless it is there.
void AddNew(Labels& known, const std::string& name) {
  if (std::ranges::find(known, name) == known.end()) known.push_back(name);
}

void CheckAxes(const std::vector<PartResult>& results, const PivotRequest& request) {
  std::set<std::string> named;
  for (const auto* axes : {&request.rows, &request.columns}) {
    const char* const where = axes == &request.rows ? "ROWS" : "COLUMNS";
    for (const std::string& name : *axes) {
      Labels known;
      bool found = false;
      for (const PartResult& result : results) {
        found = found || FindAxis(*result.part, name).has_value();
        for (const KeyColumn& axis : AxesOf(*result.part)) AddNew(known, axis.title);
      }
      if (!found) {
        SPARFUSE_THROW(kConfig, fmt::format("--pivot {} = \"{}\": expected axes of the experiment: "
                                            "{}, or another key of its cells",
                                            where, name, fmt::join(known, ", ")));
      }
      if (!named.insert(name).second) {
        SPARFUSE_THROW(kConfig, fmt::format("--pivot: axis \"{}\" is named twice: expected it once "
                                            "among ROWS and COLUMNS",
                                            name));
      }
    }
  }
}

void CheckValues(const std::vector<PartResult>& results, const PivotRequest& request,
                 const Catalog& catalog) {
  for (const std::string& name : request.values) {
    Labels known;
    bool found = false;
    for (const PartResult& result : results) {
      const Table table = ResultTable(result, catalog, request.values);
      for (const Value& value : ValuesOf(*result.part, table, request.values)) {
        found = found || IsCalled(value, table, name);
        const std::string& heading = table.columns[value.column];
        AddNew(known, heading == value.name() ? heading
                                              : fmt::format("{} (\"{}\")", value.name(), heading));
      }
    }
    if (found) continue;
    const std::string near = NearestName(name, MetricNames());
    SPARFUSE_THROW(
        kConfig,
        fmt::format("--columns \"{}\": expected columns of the table: {}, or another metric of "
                    "trials (docs/metrics.md){}",
                    name, fmt::join(known, ", "),
                    near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }
}

std::vector<Pivot> PivotsOf(const std::vector<PartResult>& results, const PivotRequest& request,
                            const Catalog& catalog) {
  CheckAxes(results, request);
  CheckValues(results, request, catalog);
  std::vector<Pivot> pivots;
  for (const PartResult& result : results) pivots.emplace_back(result, request, catalog);
  return pivots;
}

}  // namespace

std::vector<Table> PivotTables(const std::vector<PartResult>& results, const PivotRequest& request,
                               const Catalog& catalog) {
  std::vector<Table> tables;
  for (const Pivot& pivot : PivotsOf(results, request, catalog)) tables.push_back(pivot.Text());
  return tables;
}

std::vector<ordered_json> PivotNumbers(const std::vector<PartResult>& results,
                                       const PivotRequest& request, const Catalog& catalog) {
  std::vector<ordered_json> found;
  for (const Pivot& pivot : PivotsOf(results, request, catalog)) {
    for (ordered_json& row : pivot.Numbers()) found.push_back(std::move(row));
  }
  return found;
}

std::string PivotCsv(const std::vector<PartResult>& results, const PivotRequest& request,
                     const Catalog& catalog) {
  ordered_json empty = ordered_json::object();
  const std::vector<ordered_json> found = PivotNumbers(results, request, catalog);
  for (const ordered_json& row : found) {
    for (const auto& [key, value] : row.items()) empty[key] = nullptr;
  }
  std::vector<ordered_json> rows;
  for (const ordered_json& row : found) rows.emplace_back(empty).update(row);
  return CsvOf(empty, rows);
}

}  // namespace sparfuse::harness
