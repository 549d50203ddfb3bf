#include "harness/report/figures/figure_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "harness/report/agreement.hpp"
#include "harness/report/figures/ablation.hpp"
#include "harness/report/figures/grouped_bars.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/figures/published_rows.hpp"
#include "harness/report/figures/sensitivity.hpp"
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
      return {{"step", AxisWords(AxisOf(figure_)), "gain", "published (figure)", "stated", "n"},
              {},
              {kGainNote}};
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
