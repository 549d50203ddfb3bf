#include "harness/report/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/figures/published_rows.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr double kApart = 0.03;  // smaller differences of published numbers give no order
constexpr double kMiss = 0.10;   // larger errors are listed one by one

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
    const PublishedPair& least = *std::min_element(found.begin(), found.end(), fewer);
    const PublishedPair& most = *std::max_element(found.begin(), found.end(), fewer);
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

bool HaveOrder(double one, double other) { return std::max(one / other, other / one) > 1 + kApart; }

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
