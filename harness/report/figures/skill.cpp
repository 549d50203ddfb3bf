#include "harness/report/figures/skill.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>

#include "harness/catalog/model_table.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Predictions = std::vector<Prediction>;

constexpr double kApart = 0.03;  // smaller differences of published numbers give no order
constexpr const char* kStrata[] = {"cluster", "workload", "workers", "method"};

// Whether two published numbers differ by so much that methods have an order.
bool HaveOrder(double one, double other) { return std::max(one / other, other / one) > 1 + kApart; }

std::map<std::string, std::string> StrataOf(const Cell& cell) {
  std::map<std::string, std::string> strata;
  for (const char* key : kStrata) strata[key] = ValueOf(cell, key).dump();
  return strata;
}

// The seconds of a cell's step by each formula; empty if its trials have no such seconds.
std::vector<std::pair<std::string, double>> FormulaSeconds(const CellResult& cell) {
  const auto local = cell.Mean("local_seconds"), wire = cell.Mean("wire_seconds");
  if (!local || !wire) return {};
  return {{kLongest, std::max(*local, *wire)}, {kSum, *local + *wire}};
}

// The relative errors of a predictor, of the numbers that it predicts.
std::vector<double> ErrorsBy(const Predictions& predictions, std::string_view predictor) {
  std::vector<double> errors;
  for (const Prediction& each : predictions)
    if (const double* value = each.By(predictor)) errors.push_back(*value / each.theirs - 1);
  return errors;
}

std::vector<double> SizesOf(std::vector<double> errors) {
  for (double& error : errors) error = std::abs(error);
  return errors;
}

// How many pairs of methods of one setting have a published order, and how many of them the
// predictor puts in it: "2 of 3".
std::string OrderText(const Predictions& predictions, std::string_view predictor) {
  std::size_t right = 0, pairs = 0;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    for (std::size_t j = i + 1; j < predictions.size(); ++j) {
      const Prediction &one = predictions[i], &other = predictions[j];
      const double *a = one.By(predictor), *b = other.By(predictor);
      if (one.setting != other.setting || !a || !b || !HaveOrder(one.theirs, other.theirs))
        continue;
      ++pairs;
      right += *a != *b && (one.theirs > other.theirs) == (*a > *b);  // equal values have no order
    }
  }
  return pairs == 0 ? kNone : fmt::format("{} of {}", right, pairs);
}

std::vector<std::string> SkillColumns(const char* first) {
  return {first, "n", "median |error|", "90th percentile", "too high", "pairs in order", "nearest"};
}

// The model's least and largest median error over the values of a key.
std::string ByStratum(const Predictions& predictions, const char* key) {
  std::map<std::string, Predictions> groups;
  for (const Prediction& each : predictions) groups[each.strata.at(key)].push_back(each);
  if (groups.size() < 2) return kNone;
  std::vector<double> medians;
  for (const auto& [value, some] : groups)
    medians.push_back(QuantileOf(SizesOf(ErrorsBy(some, kModel)), 0.5));
  const auto [least, most] = std::ranges::minmax(medians);
  return fmt::format("{:.1f} to {}", 100 * least, PercentText(most));
}

Predictions Those(const Predictions& predictions, bool calibrated) {
  Predictions some;
  std::ranges::copy_if(predictions, std::back_inserter(some),
                       [&](const Prediction& each) { return each.calibrated == calibrated; });
  return some;
}

std::vector<std::vector<std::string>> RowsOfTestbed(const Predictions& predictions) {
  std::vector<std::vector<std::string>> rows;
  const Predictions predicted = Those(predictions, false);
  for (const auto& [kind, some] :
       {std::pair("predicted", predicted),
        std::pair("predicted, without the first", BeyondFirst(predicted)),
        std::pair("calibrated with", Those(predictions, true))}) {
    const std::size_t begin = rows.size();
    for (auto& row : SkillRows(some)) {
      row[0] = fmt::format("{}: {}", kind, row[0]);
      for (const char* key : kStrata)
        row.push_back(rows.size() == begin ? ByStratum(some, key) : "");
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// A stratum's value in the words of the command line.
std::string StratumValue(const Prediction& prediction, const std::string& key) {
  const json value = json::parse(prediction.strata.at(key));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Experiments may show a number again, such as that of a dense baseline.
bool IsSame(const Prediction& one, const Prediction& other) {
  return one.setting == other.setting && one.strata == other.strata && one.theirs == other.theirs &&
         one.by == other.by;
}

constexpr double kMiss = 0.10;  // larger errors are listed one by one

struct PublishedPair {
  std::size_t position = 0;  // index of the cell
  const Cell* cell = nullptr;
  Interval ours;
  double theirs = 0, error = 0;
  std::string unit;  // unit of the published number
  bool calibrated = false;

  // The properties that pairs of several methods share.
  std::vector<std::string> Place() const {
    return {cell->config.cluster, WorkloadLabel(cell->config.workload),
            KeyWords("workers", cell->config.workers)};
  }
};

std::vector<PublishedPair> PairsOf(const json& figure, const PartResult& result,
                                   const std::string& metric,
                                   const std::vector<std::string>& calibration) {
  const PublishedRows published(figure, result, calibration);
  std::vector<PublishedPair> pairs;
  for (const std::size_t i : figure["cells"].get<std::vector<std::size_t>>()) {
    const auto ours = result.cells[i].Over(metric);
    const Cell& cell = *result.cells[i].cell;
    const auto& rows = published.rows();
    const auto row = std::ranges::find_if(rows, [&](const PublishedRow& each) {
      return each.StandsBeside(WorkloadLabel(cell.config.workload)) && each.value &&
             each.ours == cell.config.method && PublishedRows::Fits(each, cell.config);
    });
    if (!ours || row == rows.end()) continue;
    pairs.push_back({i, &cell, *ours, *row->value, ours->value / *row->value - 1, row->unit,
                     row->calibrated || IsCalibrating(figure, i)});
  }
  return pairs;
}

std::vector<double> ErrorsOf(const std::vector<PublishedPair>& pairs) {
  std::vector<double> errors;
  for (const PublishedPair& pair : pairs) errors.push_back(std::abs(pair.error));
  return errors;
}

std::vector<std::string> SummaryRow(const std::string& name,
                                    const std::vector<PublishedPair>& pairs) {
  std::size_t banded = 0, inside = 0;
  const PublishedPair* worst = &pairs.front();
  for (const PublishedPair& pair : pairs) {
    if (std::abs(pair.error) > std::abs(worst->error)) worst = &pair;
    if (!pair.ours.has_bounds()) continue;
    ++banded;
    inside += pair.ours.low <= pair.theirs && pair.theirs <= pair.ours.high;
  }
  const auto errors = ErrorsOf(pairs);
  return {name,
          std::to_string(pairs.size()),
          PercentText(QuantileOf(errors, 0.5)),
          PercentText(QuantileOf(errors, 0.9)),
          ChangeText(worst->error),
          banded == 0 ? kNone : fmt::format("{} of {}", inside, banded)};
}

// Groups the pairs by a key, in order of appearance.
template <class Key>
std::vector<std::pair<Key, std::vector<PublishedPair>>> GroupedBy(
    const std::vector<PublishedPair>& pairs,
    const std::function<Key(const PublishedPair&)>& key_of) {
  std::vector<std::pair<Key, std::vector<PublishedPair>>> groups;
  for (const PublishedPair& pair : pairs) {
    const Key key = key_of(pair);
    auto group = std::ranges::find(groups, key, &std::pair<Key, std::vector<PublishedPair>>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(pair);
  }
  return groups;
}

// Errors of all pairs that did not calibrate, and by each key in which cells differ.
GroupedTable SummaryTable(const std::vector<PublishedPair>& pairs) {
  GroupedTable table{
      {"predictions", "n", "median |error|", "90th percentile", "largest", "within their band"},
      {{"All", {SummaryRow("all", pairs)}}}};
  for (const char* key : {"cluster", "method", "workload", "workers"}) {
    const auto groups = GroupedBy<std::string>(pairs, [&](const PublishedPair& pair) {
      const json value = KeyValue(pair.cell->json, {key, ""});
      return KeyWords(key, key == std::string_view("workload")
                               ? json(WorkloadLabel(value.get<std::string>()))
                               : value);
    });
    if (groups.size() < 2) continue;
    auto& rows = table.groups.emplace_back(fmt::format("By {}", key), 0).second;
    for (const auto& [name, some] : groups) rows.push_back(SummaryRow(name, some));
  }
  return table;
}

// The settings with several methods, and those in which two methods are in the wrong order.
GroupedTable OrderTable(const std::vector<PublishedPair>& pairs) {
  std::size_t settings = 0, wrong = 0;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [place, inside] : GroupedBy<std::vector<std::string>>(
           pairs, [](const PublishedPair& pair) { return pair.Place(); })) {
    if (inside.size() < 2) continue;
    ++settings;
    const std::size_t before = rows.size();
    std::string setting;
    for (const std::string& word : place)
      if (!word.empty()) setting += (setting.empty() ? "" : ", ") + word;
    for (std::size_t i = 0; i < inside.size(); ++i) {
      for (std::size_t j = i + 1; j < inside.size(); ++j) {
        const double theirs = inside[i].theirs / inside[j].theirs;
        const double ours = inside[i].ours.value / inside[j].ours.value;
        if (!HaveOrder(inside[i].theirs, inside[j].theirs) || (theirs > 1) == (ours > 1)) continue;
        rows.push_back({setting, inside[i].cell->label + " / " + inside[j].cell->label,
                        fmt::format("{:.3f}", ours), fmt::format("{:.3f}", theirs)});
      }
    }
    wrong += rows.size() > before;
  }
  if (rows.empty()) rows.push_back({"none is wrong", kNone, kNone, kNone});
  return {{"setting", "methods", "predicted ratio", "published ratio"},
          {{fmt::format("Order of methods right in {} of {} settings", settings - wrong, settings),
            std::move(rows)}},
          {fmt::format("Methods whose published numbers differ by {:.0f} % or less have no order. "
                       "Published numbers that calibrated the cluster count here, since one number "
                       "gives no order of methods.",
                       100 * kApart)}};
}

// The ratio from the fewest workers on several nodes to the most.
GroupedTable ScalingTable(const std::vector<PublishedPair>& pairs) {
  std::vector<PublishedPair> across;
  std::ranges::copy_if(pairs, std::back_inserter(across), [](const PublishedPair& pair) {
    return pair.cell->config.workers > std::max(1, pair.cell->config.ranks_per_node);
  });
  std::vector<std::vector<std::string>> rows;
  for (const auto& [series, found] :
       GroupedBy<std::vector<std::string>>(across, [](const PublishedPair& pair) {
         return std::vector{pair.cell->config.cluster, WorkloadLabel(pair.cell->config.workload),
                            pair.cell->label};
       })) {
    const auto fewer = [](const PublishedPair& a, const PublishedPair& b) {
      return a.cell->config.workers < b.cell->config.workers;
    };
    const PublishedPair& least = *std::ranges::min_element(found, fewer);
    const PublishedPair& most = *std::ranges::max_element(found, fewer);
    if (&least == &most) continue;
    const double ours = most.ours.value / least.ours.value, theirs = most.theirs / least.theirs;
    rows.push_back({series[0] + (series[0].empty() ? "" : ", ") + series[1], series[2],
                    fmt::format("{} to {}", least.cell->config.workers, most.cell->config.workers),
                    RatioText(ours), RatioText(theirs), ChangeText(ours / theirs - 1)});
  }
  return {{"setting", "method", "workers", "predicted", "published", "error"},
          {{"Throughput of the most workers over that of the fewest", std::move(rows)}}};
}

GroupedTable MissesTable(std::vector<PublishedPair> pairs, const PartResult& result,
                         const std::string& metric, const Catalog& catalog) {
  std::ranges::stable_sort(pairs, std::greater(),
                           [](const PublishedPair& pair) { return std::abs(pair.error); });
  std::vector<std::vector<std::string>> rows;
  for (const PublishedPair& pair : pairs) {
    if (std::abs(pair.error) <= kMiss) break;
    const CellConfig& config = pair.cell->config;
    const std::string density =
        IsDense(config) ? "" : fmt::format(", density {:g}", config.density);
    rows.push_back(
        {fmt::format("{}{}, {}, {}, {}", pair.cell->label, density, WorkloadLabel(config.workload),
                     KeyWords("workers", config.workers), config.cluster),
         IntervalText(pair.ours, UnitOf(metric, result.cells[pair.position], catalog)),
         Quantity(pair.theirs, "1"), ChangeText(pair.error)});
  }
  const std::string heading =
      fmt::format("More than {:.0f} % off: {} of {}", 100 * kMiss, rows.size(), pairs.size());
  return {{"cell", "predicted", "published", "error"}, {{heading, std::move(rows)}}};
}

}  // namespace

const double* Prediction::By(std::string_view predictor) const {
  const auto found = std::ranges::find(by, predictor, [](const auto& each) { return each.first; });
  return found == by.end() ? nullptr : &found->second;
}

Predictions AgreementPredictions(const json& figure, const PartResult& result) {
  Predictions found;
  for (const json& pair : figure["agreement"]["pairs"]) {
    const CellResult& cell = result.cells[pair["cell"]];
    const CellConfig& config = cell.cell->config;
    const double ours = cell.Over(MetricOf(figure))->value;
    Prediction& one = found.emplace_back();
    one.setting = fmt::format("{}, {}, {}", config.cluster, config.workload, config.workers);
    one.theirs = pair["theirs"];
    one.by = {{kModel, ours}};
    one.calibrated = pair["calibrated"];
    one.strata = StrataOf(*cell.cell);
    const auto step = cell.Mean("step_seconds");
    for (const auto& [formula, seconds] : FormulaSeconds(cell))
      if (step) one.by.emplace_back(formula, ours * *step / seconds);
  }
  return found;
}

Predictions RatioPredictions(const json& figure, const PartResult& result,
                             const PublishedRows& published, const GroupedBars& bars) {
  const auto shown = figure["cells"].get<std::vector<std::size_t>>();
  const bool declared = std::ranges::all_of(shown, [&](std::size_t i) {
    return !DeclaredClusterOf(result.cells[i].cell->config).empty();
  });
  const std::string over = figure.value("normalise", ""), x = AxisOf(figure);
  Predictions found;
  if (!declared || over.empty()) return found;
  for (std::size_t p = 0; p < bars.panels.size(); ++p) {
    std::map<std::string, double> first;  // published ratio at the first place, by series
    for (const GroupedBar& bar : bars.panels[p].bars) {
      const auto* const drawn = bar.Printed(false);
      if (drawn == nullptr || !bar.cell || !bar.value) continue;
      const auto& [row, theirs] = *drawn;
      Prediction& one = found.emplace_back();
      one.setting = fmt::format("{}, {}", p, bar.place);
      one.theirs = theirs;
      one.by = {{kModel, bar.value->value}};
      const CellResult& cell = result.cells[*bar.cell];
      const std::size_t counterpart = *result.CounterpartOf(*bar.cell, over);
      const auto base = FormulaSeconds(result.cells[counterpart]);
      for (const auto& [formula, seconds] : FormulaSeconds(cell)) {
        const auto same =
            std::ranges::find(base, formula, [](const auto& each) { return each.first; });
        if (same != base.end()) one.by.emplace_back(formula, same->second / seconds);
      }
      one.by.emplace_back(kNoGain, 1);
      if (bar.place == 0) {
        first[bar.name] = theirs;
      } else if (first.contains(bar.name)) {
        one.by.emplace_back(kFirst, first[bar.name]);
      }
      one.calibrated =
          row->calibrated && std::ranges::any_of(published.rows(), [&](const PublishedRow& other) {
            return other.calibrated && !other.stated && other.ours == over &&
                   other.artifact == row->artifact && other.Place(x) == row->Place(x);
          });
      one.calibrated = one.calibrated ||
                       (IsCalibrating(figure, *bar.cell) && IsCalibrating(figure, counterpart));
      one.strata = StrataOf(*cell.cell);
    }
  }
  return found;
}

Predictions BeyondFirst(const Predictions& predictions) {
  Predictions found;
  std::ranges::copy_if(predictions, std::back_inserter(found),
                       [](const Prediction& each) { return each.By(kFirst) != nullptr; });
  return found.size() < predictions.size() ? found : Predictions();
}

std::vector<std::vector<std::string>> SkillRows(const Predictions& predictions) {
  std::vector<std::string> names;
  for (const Prediction& each : predictions) {
    for (const auto& [name, value] : each.by)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::optional<double>> medians;
  std::optional<double> nearest;
  for (const std::string& name : names) {
    const std::vector<double> errors = ErrorsBy(predictions, name);
    const std::vector<double> sizes = SizesOf(errors);
    const double median = QuantileOf(sizes, 0.5);
    const bool all = errors.size() == predictions.size();
    medians.push_back(all ? std::optional(median) : std::nullopt);
    if (all && (!nearest || median < *nearest)) nearest = median;
    rows.push_back(
        {name, std::to_string(errors.size()), PercentText(median),
         PercentText(QuantileOf(sizes, 0.9)),
         fmt::format("{} of {}",
                     std::ranges::count_if(errors, [](double error) { return error > 0; }),
                     errors.size()),
         OrderText(predictions, name)});
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].emplace_back(medians[i] && *medians[i] <= *nearest ? "yes" : "");
  return rows;
}

GroupedTable SkillTable(const std::vector<std::pair<std::string, Predictions>>& groups) {
  GroupedTable table{SkillColumns("predictor"), {}, {}};
  for (const auto& [heading, predictions] : groups) {
    auto rows = SkillRows(Those(predictions, false));
    if (!rows.empty()) table.groups.emplace_back(heading, std::move(rows));
  }
  table.notes.emplace_back(
      "Formulas take the model's computation, coders and bytes on links: one assumes that a step "
      "hides all of the shorter, the other that it hides nothing. Calibration inputs of the "
      "clusters are not counted.");
  return table;
}

std::vector<TestbedPredictions> PredictionsIn(const Experiment& experiment,
                                              const std::vector<PartResult>& results,
                                              const Catalog& catalog) {
  std::vector<TestbedPredictions> found;
  for (const PartResult& result : results) {
    for (json figure : result.part->figures) {
      const std::string kind = figure["kind"];
      if (!figure.contains("published")) continue;
      Predictions predictions;
      if (kind == "agreement") {
        figure["agreement"] = AgreementOf(figure, result, experiment.calibration, catalog);
        predictions = AgreementPredictions(figure, result);
      } else if (kind == "grouped_bars") {
        const PublishedRows published(figure, result, experiment.calibration);
        predictions =
            RatioPredictions(figure, result, published, GroupedBarsOf(figure, result, published));
      }
      if (predictions.empty()) continue;
      found.push_back({experiment.id, figure.value("name", result.part->id + "-" + kind),
                       std::move(predictions)});
    }
  }
  return found;
}

std::span<const char* const> SkillStrata() { return kStrata; }

GroupedTable TestbedTable(std::vector<TestbedPredictions> found, const SkillRequest& asked) {
  GroupedTable table{SkillColumns("rows"), {}, {}};
  for (const char* key : kStrata) table.columns.push_back(std::string("by ") + key);
  Predictions all;
  for (TestbedPredictions& each : found) {
    std::erase_if(each.predictions, [&](const Prediction& one) {
      return std::ranges::any_of(asked.without, [&](const auto& left_out) {
        return StratumValue(one, left_out.first) == left_out.second;
      });
    });
    for (const Prediction& one : each.predictions) {
      if (std::ranges::none_of(all, [&](const auto& other) { return IsSame(one, other); }))
        all.push_back(one);
    }
  }
  const auto add = [&](const std::string& heading, const Predictions& predictions) {
    auto rows = RowsOfTestbed(predictions);
    if (!rows.empty()) table.groups.emplace_back(heading, std::move(rows));
    if (asked.by.empty()) return;
    std::map<std::string, Predictions> strata;
    for (const Prediction& each : predictions) strata[StratumValue(each, asked.by)].push_back(each);
    for (const auto& [value, some] : strata)
      table.groups.emplace_back(fmt::format("{}, {} = {}", heading, asked.by, value),
                                RowsOfTestbed(some));
  };
  for (const TestbedPredictions& each : found)
    add(fmt::format("{}, {}", each.testbed, each.figure), each.predictions);
  if (found.size() > 1) add("all of these, each number once", all);
  return table;
}

double QuantileOf(std::vector<double> values, double part) {
  std::ranges::sort(values);
  const double at = part * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

json AgreementOf(const json& figure, const PartResult& result,
                 const std::vector<std::string>& calibration, const Catalog& catalog) {
  const std::string metric = MetricOf(figure);
  const auto pairs = PairsOf(figure, result, metric, calibration);
  std::vector<PublishedPair> counted;
  std::ranges::copy_if(pairs, std::back_inserter(counted),
                       [](const PublishedPair& pair) { return !pair.calibrated; });
  json list = json::array();
  for (const PublishedPair& pair : pairs) {
    list.push_back({{"cell", pair.position},
                    {"theirs", pair.theirs},
                    {"error", pair.error},
                    {"unit", pair.unit},
                    {"calibrated", pair.calibrated}});
  }
  json tables = json::array();
  json median;
  if (!counted.empty()) {
    median = PercentText(QuantileOf(ErrorsOf(counted), 0.5));
    for (const GroupedTable& table : {SummaryTable(counted), OrderTable(pairs), ScalingTable(pairs),
                                      MissesTable(counted, result, metric, catalog)})
      tables.push_back(ToJson(table));
  }
  return {{"pairs", std::move(list)},
          {"counted", counted.size()},
          {"median_error", std::move(median)},
          {"tables", std::move(tables)}};
}

}  // namespace sparfuse::harness
