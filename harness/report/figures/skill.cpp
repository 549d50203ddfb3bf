#include "harness/report/figures/skill.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "harness/report/agreement.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Predictions = std::vector<Prediction>;

constexpr const char* kStrata[] = {"cluster", "workload", "workers", "method"};

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

double MedianSize(std::vector<double> errors) {
  for (double& error : errors) error = std::abs(error);
  return QuantileOf(std::move(errors), 0.5);
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
  for (const auto& [value, some] : groups) medians.push_back(MedianSize(ErrorsBy(some, kModel)));
  const auto [least, most] = std::ranges::minmax(medians);
  return fmt::format("{:.1f} to {}", 100 * least, PercentText(most));
}

Predictions Those(const Predictions& predictions, bool calibrated) {
  Predictions some;
  std::ranges::copy_if(predictions, std::back_inserter(some),
                       [&](const Prediction& each) { return each.calibrated == calibrated; });
  return some;
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
    std::vector<double> sizes;
    for (const double error : errors) sizes.push_back(std::abs(error));
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

namespace {

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

}  // namespace

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

}  // namespace sparfuse::harness
