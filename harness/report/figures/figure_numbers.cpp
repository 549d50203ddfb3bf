#include "harness/report/figures/figure_numbers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/report/figures/grouped_bars.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/figures/skill.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Rows = std::vector<const PublishedRow*>;

json PositionsOf(const Rows& rows) {
  json positions = json::array();
  for (const PublishedRow* row : rows) positions.push_back(row->position);
  return positions;
}

// The components of a paper's breakdown, and our metrics of them.
constexpr std::pair<const char*, const char*> kPublishedParts[] = {
    {"Forward", "forward_seconds"},
    {"Backward", "backward_seconds"},
    {"Sparsification", "sparsify_seconds"},
    {"NOCT", "exposed_communication_seconds"}};
constexpr double kMilliseconds = 1e-3;  // one unit for all sizes of a column

// The rows of a panel in the table of a breakdown: methods with published parts.
std::vector<std::vector<std::string>> BreakdownRows(const Panel& panel, const PartResult& result,
                                                    const Rows& published) {
  std::vector<std::pair<std::string, const CellResult*>> bars;
  for (const std::size_t i : panel.cells)
    bars.emplace_back(result.cells[i].cell->label, &result.cells[i]);
  for (const PublishedRow* row : published) {
    if (std::ranges::none_of(bars, [&](const auto& bar) { return bar.first == row->name(); }))
      bars.emplace_back(row->name(), nullptr);
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, cell] : bars) {
    for (const auto& [component, metric] : kPublishedParts) {
      const auto found = std::ranges::find_if(published, [&](const PublishedRow* row) {
        return row->name() == name && row->metric == "time/iter:" + std::string(component) &&
               row->value;
      });
      if (found == published.end()) continue;
      const double theirs = *(*found)->value * ((*found)->unit == "ms" ? 1e-3 : 1);
      const auto ours = cell ? cell->Mean(metric) : std::nullopt;
      rows.push_back({name, component, ours ? Quantity(*ours, "s", kMilliseconds) : kNone,
                      Quantity(theirs, "s", kMilliseconds),
                      ApartText(ours, theirs, (*found)->calibrated),
                      cell ? std::to_string(DrawnTrials(*cell).size()) : kNone});
    }
  }
  return rows;
}

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

// The method that a figure divides by: its own reference, else the part's.
std::string ReferenceOf(const json& figure, const PartResult& result) {
  return figure.value("reference", result.part->reference);
}

// The ratios to the reference at declared and at changed inputs, and the changes that turn the
// order of two methods round. Panels without a ratio at declared inputs are left out.
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

// The cell of a method at a place of the panel; nothing if there is none.
std::optional<std::size_t> VariantAt(const Panel& panel, const PartResult& result,
                                     const std::string& method, const std::string& x,
                                     const json& place) {
  const auto found = std::ranges::find_if(panel.cells, [&](std::size_t i) {
    const Cell& cell = *result.cells[i].cell;
    return cell.config.method == method && ValueOf(cell, x) == place;
  });
  return found == panel.cells.end() ? std::nullopt : std::optional(*found);
}

std::string GainText(const std::optional<Interval>& ratio) {
  if (!ratio) return kNone;
  std::string text = ChangeText(ratio->value - 1);
  if (ratio->has_bounds())
    text += fmt::format(" [{}, {}]", ChangeText(ratio->low - 1), ChangeText(ratio->high - 1));
  return text;
}

// The variants of an ablation: the figure's `methods`, else the methods of its cells in the
// experiment's order.
std::vector<std::string> VariantsOf(const json& figure, const PartResult& result) {
  std::vector<std::string> present;
  for (const std::size_t i : figure["cells"].get<std::vector<std::size_t>>()) {
    const std::string& method = result.cells[i].cell->config.method;
    if (std::ranges::find(present, method) == present.end()) present.push_back(method);
  }
  if (!figure.contains("methods")) return present;
  const json& wanted = figure["methods"];
  std::vector<std::string> variants;
  for (const std::string method : wanted.is_array() ? wanted : json::array({wanted}))
    if (std::ranges::find(present, method) != present.end()) variants.push_back(method);
  return variants;
}

// A gain that a paper's figure has, or that its text states ("up to 12 %").
struct PrintedGain {
  const PublishedRow* row = nullptr;
  double ratio = 1;
};

// The step from a variant of a panel to the next.
struct AblationStep {
  std::string variant, before;
  std::vector<std::pair<json, PrintedGain>> printed = {};  // by place of published rows
  const PublishedRow* stated = nullptr;
};

// A step for each variant after the first. `rows` are the panel's.
std::vector<AblationStep> AblationSteps(const std::vector<std::string>& variants,
                                        const Panel& panel, const PartResult& result,
                                        const PublishedRows& published,
                                        const std::vector<const PublishedRow*>& rows,
                                        const std::string& x) {
  const std::string workload =
      WorkloadLabel(result.cells[panel.cells.front()].cell->config.workload);
  std::vector<AblationStep> steps;
  for (std::size_t v = 1; v < variants.size(); ++v) {
    AblationStep& step = steps.emplace_back(AblationStep{variants[v], variants[v - 1]});
    for (const PublishedRow* row : rows) {
      if (row->ours != step.variant || !row->value) continue;
      const auto base = std::ranges::find_if(rows, [&](const PublishedRow* other) {
        return other->ours == step.before && other->artifact == row->artifact &&
               other->Place(x) == row->Place(x) && other->value.value_or(0) != 0;
      });
      if (base != rows.end())
        step.printed.push_back({row->Place(x), {row, *row->value / *(*base)->value}});
    }
    for (const PublishedRow& row : published.rows()) {
      const auto gain = GainOf(row);
      const bool is_of = gain && row.IsOf(workload) && published.OursOf(gain->of) == step.variant &&
                         published.OursOf(gain->over) == step.before;
      if (is_of && step.stated == nullptr) step.stated = &row;
    }
  }
  return steps;
}

// The rows of a panel in the table of gains.
std::vector<std::vector<std::string>> AblationRows(const json& figure, const Panel& panel,
                                                   const PartResult& result,
                                                   const std::vector<AblationStep>& steps) {
  const std::string x = AxisOf(figure), metric = MetricOf(figure);
  std::vector<json> places;
  for (const std::size_t i : panel.cells) {
    const json place = ValueOf(*result.cells[i].cell, x);
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  std::ranges::stable_sort(places, Before);
  std::vector<std::vector<std::string>> rows;
  for (const AblationStep& step : steps) {
    for (const json& place : places) {
      const auto cell = VariantAt(panel, result, step.variant, x, place);
      const auto ratio = cell ? result.RatioTo(*cell, step.before, metric) : std::nullopt;
      const std::string failure = cell ? ShownFailure(result.cells[*cell]) : "";
      const auto any = std::ranges::find_if(
          panel.cells, [&](std::size_t i) { return ValueOf(*result.cells[i].cell, x) == place; });
      const json theirs_at = place.is_object() ? place.value("gbps", json()) : place;
      const auto printed = std::ranges::find_if(
          step.printed, [&](const auto& each) { return each.first == theirs_at; });
      rows.push_back({fmt::format("{} over {}", step.variant, step.before),
                      TickText(x, *result.cells[*any].cell),
                      ratio || failure.empty() ? GainText(ratio) : failure,
                      printed == step.printed.end() ? kNone : ChangeText(printed->second.ratio - 1),
                      step.stated ? fmt::format("up to {} %", step.stated->printed) : kNone,
                      ratio ? std::to_string(ratio->n) : kNone});
    }
  }
  return rows;
}

// {largest: [row, percent] of the largest printed gain or null, stated: row or null}
json ToJson(const AblationStep& step) {
  const auto largest = std::ranges::max_element(step.printed, {},
                                                [](const auto& each) { return each.second.ratio; });
  return {{"largest",
           largest == step.printed.end()
               ? json()
               : json::array({largest->second.row->position, 100 * (largest->second.ratio - 1)})},
          {"stated", step.stated ? json(step.stated->position) : json()}};
}

// Fills the entry of one figure.
class Completion {
 public:
  Completion(json& figure, const PartResult& result, const std::vector<std::string>& calibration,
             const Catalog& catalog)
      : figure_(figure),
        result_(result),
        catalog_(catalog),
        published_(figure, result, calibration),
        kind_(figure["kind"]) {}

  void Fill() {
    const bool normalised = kind_ == "normalised_bars";
    if (kind_ == "sensitivity" || normalised) figure_["reference"] = ReferenceOf(figure_, result_);
    if (normalised) figure_.update({{"y", MetricOf(figure_)}, {"normalise", figure_["reference"]}});
    if (kind_ == "grouped_bars" || normalised || kind_ == "ablation" || kind_ == "slopes")
      figure_["x"] = AxisOf(figure_);
    if (kind_ == "grouped_bars" || normalised) {
      FillGrouped();
    } else {
      FillPanels();
    }
    if (figure_.contains("published")) DescribePublished(figure_, published_, elsewhere_);
    json tables = json::array();
    for (const char* found : {"agreement", "time_to_target"}) {
      if (!figure_.contains(found)) continue;
      tables = std::move(figure_[found]["tables"]);
      figure_[found].erase("tables");
    }
    for (const GroupedTable& table : tables_)
      if (!table.groups.empty()) tables.push_back(ToJson(table));
    figure_["tables"] = std::move(tables);
  }

 private:
  void FillGrouped() {
    GroupedBars bars = GroupedBarsOf(figure_, result_, published_);
    json panels = json::array();
    for (const GroupedPanel& panel : bars.panels) {
      json& entry = panels.emplace_back(ToJson(panel.panel));
      entry["places"] = panel.places;
      entry["bars"] = json::array();
      for (const GroupedBar& bar : panel.bars) entry["bars"].push_back(ToJson(bar));
    }
    if (!published_.rows().empty()) {
      tables_.push_back(GroupedBarsTable(figure_, result_, bars, published_, catalog_));
      AddSkill("Ratios to " + figure_.value("normalise", ""),
               RatioPredictions(figure_, result_, published_, bars));
    }
    figure_["panels"] = std::move(panels);
    figure_["names"] = bars.names;
    elsewhere_ = std::move(bars.elsewhere);
  }

  void FillPanels() {
    json narrowed = figure_;  // an ablation places cells of its variants alone
    if (kind_ == "ablation") {
      figure_["variants"] = VariantsOf(figure_, result_);
      std::erase_if(narrowed["cells"].get_ref<json::array_t&>(), [&](const json& i) {
        const json& variants = figure_["variants"];
        const json method = result_.cells[i].cell->config.method;
        return std::ranges::find(variants, method) == variants.end();
      });
    }
    const std::vector<Panel> panels = PanelsOf(narrowed, result_);
    auto placed = published_.PlacedIn(panels, result_, kind_ == "ablation" ? AxisOf(figure_) : "");
    GroupedTable table = TableOf(panels);
    json entries = json::array();
    for (std::size_t p = 0; p < panels.size(); ++p) {
      json& entry = entries.emplace_back(ToJson(panels[p]));
      auto rows = RowsOf(panels[p], placed.of_panels[p], entry);
      if (!rows.empty()) table.groups.emplace_back(panels[p].heading, std::move(rows));
    }
    if (kind_ == "breakdown" || kind_ == "ablation") elsewhere_ = std::move(placed.elsewhere);
    if (!panels.empty()) figure_["panels"] = std::move(entries);
    tables_.push_back(std::move(table));
    if (figure_.contains("agreement"))
      AddSkill("Beside formulas", AgreementPredictions(figure_, result_));
  }

  // The table of a kind: without its groups, but for a kind whose groups are found at once.
  GroupedTable TableOf(const std::vector<Panel>& panels) const {
    if (kind_ == "ablation") {
      return {
          {"step", AxisWords(AxisOf(figure_)), "gain", "published (figure)", "stated", "n"},
          {},
          {"Gain: ours / the variant before − 1, paired over blocks, with its 95 % t interval."}};
    }
    if (kind_ == "breakdown") {
      return {{"method", "part", "ours", "published", "ours / published − 1", "n"},
              {},
              {published_.Source()}};
    }
    return kind_ == "sensitivity" ? SensitivityTable(figure_, result_, panels) : GroupedTable();
  }

  // The rows of a panel in that table. Adds what is drawn of published rows to the panel's entry.
  std::vector<std::vector<std::string>> RowsOf(const Panel& panel, const Rows& published,
                                               json& entry) const {
    if (kind_ == "breakdown") {
      entry["rows"] = PositionsOf(published);
      return BreakdownRows(panel, result_, published);
    }
    if (kind_ == "ablation") {
      const auto steps = AblationSteps(figure_["variants"], panel, result_, published_, published,
                                       AxisOf(figure_));
      for (const AblationStep& step : steps) entry["steps"].push_back(ToJson(step));
      return AblationRows(figure_, panel, result_, steps);
    }
    return {};
  }

  void AddSkill(const std::string& heading, const std::vector<Prediction>& found) {
    if (found.empty()) return;
    std::vector<std::pair<std::string, std::vector<Prediction>>> groups = {{heading, found}};
    if (auto beyond = BeyondFirst(found); !beyond.empty()) {
      groups.emplace_back("The same without the first of " + AxisWords(AxisOf(figure_)),
                          std::move(beyond));
    }
    tables_.push_back(SkillTable(groups));
  }

  json& figure_;
  const PartResult& result_;
  const Catalog& catalog_;
  const PublishedRows published_;
  const std::string kind_;
  Rows elsewhere_;
  std::vector<GroupedTable> tables_;
};

}  // namespace

void CompleteFigure(json& figure, const PartResult& result,
                    const std::vector<std::string>& calibration, const Catalog& catalog) {
  Completion(figure, result, calibration, catalog).Fill();
}

}  // namespace sparfuse::harness
