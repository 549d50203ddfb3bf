#include "harness/report/figures/grouped_bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/catalog/model_table.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// What cells and published rows of one group have in common.
json PlaceOf(const std::string& x, const Cell& cell) {
  const json value = ValueOf(cell, x);
  if (x == "link") return cell.config.link ? json(cell.config.link->gbps) : json();
  return x == "sparsifier" ? json(PlainName(value.get<std::string>())) : value;
}

// "10 Gbit/s", "0.01": a place that only the paper has.
std::string PublishedTick(const std::string& x, const json& place) {
  if (x == "link") return LinkWords(LinkShape{.gbps = place.get<double>()});
  return place.is_number() ? fmt::format("{:g}", place.get<double>()) : place.get<std::string>();
}

std::string SeriesText(const Cell& cell, const std::string& series) {
  const json value = ValueOf(cell, series);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Whether the published numbers of a figure are ratios already.
bool PrintsRatios(const json& figure) { return figure["kind"] == "normalised_bars"; }

// Finds the bars. Places are kept as values until every row has one.
class BarFinder {
 public:
  BarFinder(const json& figure, const PartResult& result, const PublishedRows& published)
      : result_(result),
        published_(published),
        x_(AxisOf(figure)),
        metric_(MetricOf(figure)),
        series_(SeriesKeyOf(figure)),
        over_(figure.value("normalise", "")),
        prints_ratios_(PrintsRatios(figure)) {}

  GroupedBars Found(const json& figure) {
    const std::vector<Panel> panels = PanelsOf(figure, result_);
    FindCrowdedMethods(panels);
    auto placed = published_.PlacedIn(panels, result_, x_);
    GroupedBars found{{}, std::move(placed.elsewhere), NamesOf(figure)};
    for (std::size_t p = 0; p < panels.size(); ++p)
      found.panels.push_back(Filled(panels[p], placed.of_panels[p]));
    return found;
  }

 private:
  // A method has its name alone if no panel has two of its cells at a place. Published numbers use
  // such names, and so stand over it.
  void FindCrowdedMethods(const std::vector<Panel>& panels) {
    for (const Panel& panel : panels) {
      std::set<std::pair<std::string, json>> seen;
      for (const std::size_t i : panel.cells) {
        const Cell& cell = *result_.cells[i].cell;
        if (!seen.emplace(cell.config.method, PlaceOf(x_, cell)).second)
          crowded_.insert(cell.config.method);
      }
    }
  }

  std::string NameOfBar(const Cell& cell) const {
    const bool alone = series_ == "label" && !crowded_.contains(cell.config.method);
    return alone ? cell.config.method : SeriesText(cell, series_);
  }

  std::vector<std::pair<std::string, std::string>> NamesOf(const json& figure) const {
    auto shown = figure["cells"].get<std::vector<std::size_t>>();
    const bool methods = series_ == "label" || series_ == "method";
    if (!methods) {
      std::ranges::stable_sort(shown, [&](std::size_t a, std::size_t b) {
        return Before(ValueOf(*result_.cells[a].cell, series_),
                      ValueOf(*result_.cells[b].cell, series_));
      });
    }
    std::vector<std::pair<std::string, std::string>> names;
    for (const std::size_t i : shown) {
      const Cell& cell = *result_.cells[i].cell;
      const std::string name = NameOfBar(cell);
      if (name == over_ ||
          std::ranges::any_of(names, [&](const auto& n) { return n.first == name; }))
        continue;
      names.emplace_back(name, methods ? name : KeyWords(series_, ValueOf(cell, series_)));
    }
    return names;
  }

  void Measure(GroupedBar& bar) const {
    const CellResult& cell = result_.cells[*bar.cell];
    const auto values = cell.Values(metric_);
    bar.why = !ShownFailure(cell).empty()  ? ShownFailure(cell)
              : cell.MissedTarget(metric_) ? std::string(kTargetNotReached)
              : values.empty()             ? "no value"
                                           : "exactly 0";
    if (over_.empty()) {
      bar.value = cell.Over(metric_);
      if (!bar.value) return;
      bar.dots = OfBlocks(values);
      const auto reference = result_.ReferenceOf(*bar.cell);
      const auto ratio =
          reference ? RatioOf(cell, result_.cells[*reference], metric_) : std::nullopt;
      const double value = bar.value->value;
      // The interval of the ratio, drawn around the bar: of one value without a ratio there is
      // none.
      bar.value = ratio && ratio->has_bounds()
                      ? Interval{value, value * ratio->low / ratio->value,
                                 value * ratio->high / ratio->value, ratio->n}
                      : Interval{value, value, value, 1};
      return;
    }
    const auto base = result_.CounterpartOf(*bar.cell, over_);
    if (!values.empty() && (!base || result_.cells[*base].Values(metric_).empty()))
      bar.why = "no " + over_;
    if (!base) return;
    bar.value = RatioOf(cell, result_.cells[*base], metric_);
    bar.dots = OfBlocks(RatiosByBlock(cell, result_.cells[*base], metric_));
  }

  std::size_t PositionOf(const json& place) const {
    return static_cast<std::size_t>(std::ranges::find(places_, place) - places_.begin());
  }

  GroupedBar& BarAt(GroupedPanel& filled, const json& place, const std::string& name) const {
    const std::size_t position = PositionOf(place);
    for (GroupedBar& bar : filled.bars)
      if (bar.place == position && bar.name == name) return bar;
    return filled.bars.emplace_back(GroupedBar{.place = position, .name = name});
  }

  void AddPlace(GroupedPanel& filled, const json& place, const std::string& tick) {
    if (PositionOf(place) < places_.size()) return;
    places_.push_back(place);
    filled.places.push_back(tick);
  }

  GroupedPanel Filled(const Panel& panel, const std::vector<const PublishedRow*>& rows) {
    GroupedPanel filled{panel, {}, {}};
    places_.clear();
    std::vector<std::size_t> ordered = panel.cells;
    if (x_ != "workload") {  // workloads keep the experiment's order
      std::ranges::stable_sort(ordered, [&](std::size_t a, std::size_t b) {
        return Before(ValueOf(*result_.cells[a].cell, x_), ValueOf(*result_.cells[b].cell, x_));
      });
    }
    for (const std::size_t i : ordered) {
      const Cell& cell = *result_.cells[i].cell;
      AddPlace(filled, PlaceOf(x_, cell), TickText(x_, cell));
      GroupedBar& bar = filled.bars.emplace_back(
          GroupedBar{.place = PositionOf(PlaceOf(x_, cell)), .name = NameOfBar(cell), .cell = i});
      Measure(bar);
    }
    for (const PublishedRow* row : rows) AddPublished(filled, rows, *row);
    AddStated(filled);
    std::erase_if(filled.bars, [&](const GroupedBar& bar) { return bar.name == over_; });
    SortPlaces(filled);
    return filled;
  }

  void AddPublished(GroupedPanel& filled, const std::vector<const PublishedRow*>& rows,
                    const PublishedRow& row) {
    const json place = row.Place(x_);
    if (place.is_null() || !row.value) return;
    double height = *row.value;
    if (!over_.empty() && !prints_ratios_) {
      const auto base = std::ranges::find_if(rows, [&](const PublishedRow* each) {
        return each->artifact == row.artifact && each->Place(x_) == place && each->ours == over_;
      });
      if (base == rows.end() || (*base)->value.value_or(0) == 0) return;
      height /= *(*base)->value;
    }
    AddPlace(filled, place, PublishedTick(x_, place));
    BarAt(filled, place, row.name()).printed.emplace_back(&row, height);
  }

  // Gains over the reference that the paper's text states for the panel's one workload.
  void AddStated(GroupedPanel& filled) const {
    std::set<std::string> workloads;
    for (const std::size_t i : filled.panel.cells)
      workloads.insert(WorkloadLabel(result_.cells[i].cell->config.workload));
    if (workloads.size() != 1 || over_.empty()) return;
    for (const PublishedRow& row : published_.rows()) {
      const auto gain = GainOf(row);
      const json place = row.Place(x_);
      if (!gain || !row.IsOf(*workloads.begin()) || PositionOf(place) == places_.size()) continue;
      if (published_.OursOf(gain->over) != over_) continue;
      const std::string ours = published_.OursOf(gain->of);
      BarAt(filled, place, ours.empty() ? gain->of : ours).printed.emplace_back(&row, gain->ratio);
    }
  }

  // Puts published places between ours if all are numbers; then bars by place and series.
  void SortPlaces(GroupedPanel& filled) const {
    std::vector<std::size_t> order(places_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (std::ranges::all_of(places_, [](const json& place) { return place.is_number(); })) {
      std::ranges::stable_sort(
          order, [&](std::size_t a, std::size_t b) { return places_[a] < places_[b]; });
    }
    std::vector<std::string> ticks;
    std::vector<std::size_t> now_at(order.size());
    for (const std::size_t i : order) {
      now_at[i] = ticks.size();
      ticks.push_back(filled.places[i]);
    }
    filled.places = std::move(ticks);
    for (GroupedBar& bar : filled.bars) bar.place = now_at[bar.place];
    // Ours first; of either in the order in which they came.
    std::ranges::stable_sort(filled.bars, {},
                             [](const GroupedBar& bar) { return std::pair(bar.place, !bar.cell); });
  }

  const PartResult& result_;
  const PublishedRows& published_;
  const std::string x_, metric_, series_, over_;
  const bool prints_ratios_;
  std::set<std::string> crowded_;  // methods with several cells at a place
  std::vector<json> places_;       // of the panel at hand
};

// The paper's unit without remarks: "images/s".
std::string BareUnit(const std::string& unit) {
  std::string bare = unit.substr(0, unit.find('('));
  return bare.erase(bare.find_last_not_of(' ') + 1);
}

}  // namespace

const std::pair<const PublishedRow*, double>* GroupedBar::Printed(bool stated) const {
  const auto found =
      std::ranges::find_if(printed, [&](const auto& each) { return each.first->stated == stated; });
  return found == printed.end() ? nullptr : &*found;
}

GroupedBars GroupedBarsOf(const json& figure, const PartResult& result,
                          const PublishedRows& published) {
  return BarFinder(figure, result, published).Found(figure);
}

GroupedTable GroupedBarsTable(const json& figure, const PartResult& result, const GroupedBars& bars,
                              const PublishedRows& published, const Catalog& catalog) {
  const std::string metric = MetricOf(figure), over = figure.value("normalise", "");
  const bool prints_ratios = PrintsRatios(figure);
  GroupedTable table{{"method", AxisWords(AxisOf(figure)), "ours"}, {}, {}};
  if (!prints_ratios) table.columns.emplace_back("published");
  if (!over.empty())
    table.columns.insert(table.columns.end(), {"ours / " + over, "published / " + over});
  table.columns.insert(table.columns.end(), {over.empty() ? "ours / published − 1"
                                                          : "of the ratios: ours / published − 1",
                                             "n", "published in"});
  std::map<std::string, std::string> renamed;  // the paper's unit: ours that stands for it
  for (const GroupedPanel& panel : bars.panels) {
    std::set<std::string> units;
    for (const GroupedBar& bar : panel.bars) {
      if (bar.cell && result.cells[*bar.cell].Over(metric))
        units.insert(UnitOf(metric, result.cells[*bar.cell], catalog));
    }
    auto& rows = table.groups.emplace_back(panel.panel.heading, 0).second;
    for (const GroupedBar& bar : panel.bars) {
      const CellResult* cell = bar.cell ? &result.cells[*bar.cell] : nullptr;
      const auto *drawn = bar.Printed(false), *said = bar.Printed(true);
      const PublishedRow* row = drawn ? drawn->first : nullptr;
      std::string ours = kNone, theirs = kNone;
      if (cell != nullptr) {
        const auto interval = cell->Over(metric);
        if (interval) ours = IntervalText(*interval, UnitOf(metric, *cell, catalog));
        if (!interval && !ShownFailure(*cell).empty()) ours = ShownFailure(*cell);
      }
      if (row != nullptr && !prints_ratios) {
        std::string unit = BareUnit(row->unit);
        if (units.size() == 1 && !units.contains(unit)) {
          unit = renamed[unit] = *units.begin();  // the figure shows both on one axis
        }
        theirs = Quantity(*row->value, unit.empty() ? "1" : unit);
      }
      std::vector<std::string> line = {bar.name, panel.places[bar.place], ours};
      if (!prints_ratios) line.push_back(theirs);
      if (!over.empty()) {
        std::string ratio = drawn ? RatioText(drawn->second) : "";
        if (said) ratio += (drawn ? " (text " : "(text ") + RatioText(said->second) + ")";
        line.insert(line.end(), {RatioText(bar.value), ratio.empty() ? kNone : ratio});
      }
      const auto our_height = bar.value ? std::optional(bar.value->value) : std::nullopt;
      const auto their_height = drawn ? std::optional(drawn->second) : std::nullopt;
      line.insert(line.end(),
                  {ApartText(our_height, their_height, row != nullptr && row->calibrated),
                   cell ? std::to_string(cell->Values(metric).size()) : kNone,
                   row ? row->artifact : kNone});
      rows.push_back(std::move(line));
    }
  }
  if (over.empty()) {
    table.notes.emplace_back(
        "The hardware differs, unless our numbers are from a model of the paper's cluster.");
  }
  for (const auto& [theirs, ours] : renamed)
    table.notes.push_back(
        fmt::format("The paper calls the unit {}, which is taken as {}.", theirs, ours));
  table.notes.push_back(published.Source());
  if (const std::string words = SettingsThatDiffer(bars.elsewhere); !words.empty())
    table.notes.push_back(words);
  return table;
}

json ToJson(const GroupedBar& bar) {
  json printed = json::array();
  for (const auto& [row, height] : bar.printed) printed.push_back({row->position, height});
  json written = IntervalJson(bar.value);
  if (written.is_null()) written = {{"value", nullptr}, {"low", nullptr}, {"high", nullptr}};
  written.erase("n");
  written.update({{"place", bar.place},
                  {"name", bar.name},
                  {"cell", bar.cell ? json(*bar.cell) : json()},
                  {"dots", bar.dots},
                  {"why", bar.why},
                  {"printed", std::move(printed)}});
  return written;
}

std::string ApartText(const std::optional<double>& ours, const std::optional<double>& theirs,
                      bool calibrated) {
  if (calibrated) return "calibration input";
  return ours && theirs ? ChangeText(*ours / *theirs - 1) : kNone;
}

}  // namespace sparfuse::harness
