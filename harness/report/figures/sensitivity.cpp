#include "harness/report/figures/sensitivity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The inputs that a cell changes, in words, and the geometric mean of their factors; {"", 1} of
// declared inputs, which sort first.
using Change = std::pair<std::string, double>;

Change ChangeIn(const CellConfig& config) {
  std::string words;
  double logs = 0;
  int changed = 0;
  for (const auto& [name, factor] : config.inputs) {
    if (factor == 1) continue;
    words += (words.empty() ? "" : ", ") + AxisWords(name);
    logs += std::log(factor);
    ++changed;
  }
  return {words, changed == 0 ? 1 : std::exp(logs / changed)};
}

// The cells of a panel: by change, and by method.
class Setting {
 public:
  Setting(const PartResult& result, const Panel& panel, std::string reference, std::string metric)
      : result_(result), reference_(std::move(reference)), metric_(std::move(metric)) {
    for (const std::size_t i : panel.cells) {
      const CellConfig& config = result.cells[i].cell->config;
      cells_[ChangeIn(config)][config.method] = i;
    }
  }

  std::vector<Change> Changes() const {
    std::vector<Change> changes;
    for (const auto& [change, cells] : cells_) changes.push_back(change);
    return changes;
  }

  std::optional<Interval> Ratio(const Change& change, const std::string& method) const {
    const auto& cells = CellsAt(change);
    const auto cell = cells.find(method);
    return cell == cells.end() ? std::nullopt : result_.RatioTo(cell->second, reference_, metric_);
  }

  // "a before b" for methods that are faster than b only under the change.
  std::vector<std::string> Turned(const Change& change) const {
    std::vector<std::string> turned;
    const auto &declared = CellsAt(kDeclared), &varied = CellsAt(change);
    for (const auto& [one, at_one] : declared) {
      for (const auto& [other, at_other] : declared) {
        if (!varied.contains(one) || !varied.contains(other)) continue;
        if (IsFaster(varied.at(one), varied.at(other)) && IsFaster(at_other, at_one))
          turned.push_back(fmt::format("{} before {}", one, other));
      }
    }
    return turned;
  }

  std::size_t Blocks(const Change& change) const {
    std::size_t most = 0;
    for (const auto& [method, i] : CellsAt(change))
      most = std::max(most, DrawnTrials(result_.cells[i]).size());
    return most;
  }

  static inline const Change kDeclared = {"", 1};

 private:
  const std::map<std::string, std::size_t>& CellsAt(const Change& change) const {
    static const std::map<std::string, std::size_t> kNoCells;
    const auto found = cells_.find(change);
    return found == cells_.end() ? kNoCells : found->second;
  }

  bool IsFaster(std::size_t one, std::size_t other) const {
    const auto a = result_.cells[one].Over(metric_), b = result_.cells[other].Over(metric_);
    return a && b && a->value > b->value;
  }

  const PartResult& result_;
  const std::string reference_, metric_;
  std::map<Change, std::map<std::string, std::size_t>> cells_;
};

}  // namespace

std::string ReferenceOf(const json& figure, const PartResult& result) {
  return figure.value("reference", result.part->reference);
}

GroupedTable SensitivityTable(const json& figure, const PartResult& result,
                              const std::vector<Panel>& panels) {
  const std::string metric = MetricOf(figure), reference = ReferenceOf(figure, result);
  std::vector<std::string> methods;
  for (const std::size_t i : figure["cells"].get<std::vector<std::size_t>>()) {
    const std::string& method = result.cells[i].cell->config.method;
    if (method != reference && std::ranges::find(methods, method) == methods.end())
      methods.push_back(method);
  }
  GroupedTable table{{"input", "factor"}, {}, {}};
  for (const std::string& method : methods) table.columns.push_back(method + " / " + reference);
  table.columns.insert(table.columns.end(), {std::string("order that changes"), std::string("n")});
  std::size_t changes = 0, turns = 0;
  for (const Panel& panel : panels) {
    const Setting setting(result, panel, reference, metric);
    if (std::ranges::none_of(methods, [&](const std::string& method) {
          return setting.Ratio(Setting::kDeclared, method).has_value();
        })) {
      continue;
    }
    auto& rows = table.groups.emplace_back(panel.heading, 0).second;
    for (const Change& change : setting.Changes()) {
      const bool declared = change == Setting::kDeclared;
      const auto turned = declared ? std::vector<std::string>() : setting.Turned(change);
      changes += !declared;
      turns += !turned.empty();
      std::vector<std::string> row = {declared ? "as declared" : change.first,
                                      fmt::format("{:g}", change.second)};
      for (const std::string& method : methods)
        row.push_back(RatioText(setting.Ratio(change, method)));
      row.push_back(fmt::format("{}", fmt::join(turned, "; ")));
      row.push_back(std::to_string(setting.Blocks(change)));
      rows.push_back(std::move(row));
    }
  }
  const std::string order = "Order by " + AxisWords(metric) + ": ";
  table.notes.push_back(
      order + (turns > 0 ? fmt::format("{} of {} changes reverse part of it.", turns, changes)
                         : "no change reverses any of it."));
  return table;
}

}  // namespace sparfuse::harness
