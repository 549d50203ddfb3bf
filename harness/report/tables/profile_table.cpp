// Lays out the outcomes of profile trials as tables for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "harness/clusters/profile_data.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kElements = 1'000'000;
constexpr double kDensity = 0.01;
constexpr std::size_t kSlowest = 5;

std::string LinkName(const CellConfig& config) {
  return config.link ? LinkWordsInFull(*config.link) + " (emulated)" : "own";
}

// Names the workloads of outcomes, so that two outcomes with any other difference have other names.
class WorkloadNames {
 public:
  explicit WorkloadNames(const ProfileOutcomes& outcomes) {
    static const std::set<std::string> kShownAnyway = {
        "workload",           "workers", "link.gbps", "link.alpha_us",
        "threads_per_worker", "device",  "precision"};
    std::vector<json> configs;
    for (const ProfileOutcome& outcome : outcomes) configs.push_back(ToJson(outcome.config));
    for (KeyColumn& column : KeyColumnsOf(configs)) {
      if (!kShownAnyway.contains(column.path)) keys_.push_back(std::move(column));
    }
  }

  // "text-gpt, cuda, batch 16": names device and precision, too, unless they are the host and
  // float32.
  std::string operator()(const CellConfig& config) const {
    std::string name = config.workload;
    if (config.device != Place::kCpu) name += ", " + NameOf(config.device);
    if (config.precision != Precision::kFp32) name += ", " + NameOf(config.precision);
    const json as_json = ToJson(config);
    for (const KeyColumn& key : keys_)
      name += fmt::format(", {} {}", key.title, KeyText(as_json, key));
    return name;
  }

 private:
  std::vector<KeyColumn> keys_;
};

std::string RanksName(const CellConfig& config) {
  const int threads = config.threads_per_worker;
  return std::to_string(config.workers) +
         (threads == 1 ? "" : fmt::format(" x {} threads", threads));
}

// "12.34 ± 0.10", in units of `unit` seconds; half: half of the interval.
std::string WithInterval(double value, double half, double unit = 1) {
  const double shown = half / unit;
  const int digits =
      shown > 0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(shown))), 0, 4) : 3;
  return fmt::format("{:.{}f} ± {:.{}f}", value / unit, digits, shown, digits);
}

// A number of the profile with its interval from "relative_errors".
std::string Measured(const Profile& profile, double value, const std::string& place, double unit) {
  const auto found = profile.relative_errors.find(place);
  const double error = found == profile.relative_errors.end() ? 0 : found->second.of_all;
  const double z = StudentTQuantile(0.5 + kConfidence / 2, 1e6);
  return WithInterval(value, z * error * value, unit);
}

Table Passes(const ProfileOutcomes& outcomes, const WorkloadNames& names) {
  Table table{.title = "Passes, ms",
              .columns = {"workload", "ranks", "link", "n", "forward", "backward", "with hooks",
                          "update", "load"}};
  for (const ProfileOutcome& outcome : outcomes) {
    const CellConfig& config = outcome.config;
    const BackwardTimes backward = outcome.profile.backward.value_or(BackwardTimes());
    const auto load = outcome.machine.find("load_before");
    const auto cell = [&](double seconds, const char* name) {
      return Measured(outcome.profile, seconds, fmt::format("/backward/{}_seconds", name), 1e-3);
    };
    table.rows.push_back(
        {names(config), RanksName(config), LinkName(config), std::to_string(backward.steps),
         cell(backward.forward_seconds, "forward"),
         cell(backward.unhooked_seconds.value_or(0), "unhooked"),
         cell(backward.hooked_seconds.value_or(0), "hooked"),
         cell(backward.update_seconds, "update"),
         load == outcome.machine.end() ? kNone : fmt::format("{:.1f}", load->get<double>())});
  }
  table.caption =
      "Medians over n passes, mean over ranks that run at once, ± half a 95 % interval. Tensors' "
      "times, seen by hooks, are scaled to the total without hooks. load: average of the minute "
      "before; above 0.3, other work disturbed the measurement.";
  return table;
}

Table SlowestTensors(const ProfileOutcomes& outcomes, const WorkloadNames& names) {
  Table table{.title = "Slowest tensors in backward",
              .columns = {"workload", "tensor", "elements", "ms", "of backward"}};
  std::set<std::string> shown;
  for (const ProfileOutcome& outcome : outcomes) {
    const BackwardTimes backward = outcome.profile.backward.value_or(BackwardTimes());
    const std::string workload = names(outcome.config);
    if (!shown.insert(workload).second) continue;
    std::vector<ProfiledTensor> tensors = backward.tensors;
    const std::size_t count = std::min(kSlowest, tensors.size());
    std::partial_sort(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(count),
                      tensors.end(),
                      [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    for (std::size_t i = 0; i < count; ++i) {
      table.rows.push_back({workload, tensors[i].name, std::to_string(tensors[i].numel),
                            fmt::format("{:.3f}", 1e3 * tensors[i].seconds),
                            fmt::format("{:.1f} %", 100 * tensors[i].seconds /
                                                        backward.unhooked_seconds.value_or(0))});
    }
  }
  table.caption = "For the first row of each workload above.";
  return table;
}

std::string ColumnName(const CellConfig& config, const WorkloadNames& names) {
  return names(config) + " x" + RanksName(config) + (config.link ? ", shaped" : "");
}

// Adds a row with cell(costs) for each outcome.
template <class Cell>
void AddRow(Table& table, const std::string& name, const std::vector<CostModel>& costs,
            const Cell& cell) {
  std::vector<std::string> row = {name};
  for (const CostModel& cost : costs) row.push_back(cell(cost));
  table.rows.push_back(std::move(row));
}

Table Kernels(const ProfileOutcomes& outcomes, const WorkloadNames& names) {
  Table table{.title = fmt::format("Kernels, ns an element of {:g} million at density {}",
                                   1e-6 * static_cast<double>(kElements), kDensity),
              .columns = {"kernel"}};
  std::vector<CostModel> costs;
  std::set<std::string> sparsifiers;
  std::set<std::string> quantizers;
  for (const ProfileOutcome& outcome : outcomes) {
    table.columns.push_back(ColumnName(outcome.config, names));
    costs.push_back(KernelCosts(outcome.profile));
    for (const auto& [name, cost] : costs.back().selection) sparsifiers.insert(name);
    for (const auto& [name, cost] : costs.back().encode_seconds) quantizers.insert(name);
  }
  const auto each = [](double seconds) {
    return fmt::format("{:.3f}", 1e9 * seconds / static_cast<double>(kElements));
  };
  for (const std::string& name : sparsifiers) {
    AddRow(table, "select " + name, costs, [&](const CostModel& cost) {
      return cost.selection.contains(name) ? each(cost.SelectionSeconds(name, kElements, kDensity))
                                           : kNone;
    });
  }
  for (const std::string& name : quantizers) {
    AddRow(table, "encode " + name, costs, [&](const CostModel& cost) {
      return cost.encode_seconds.contains(name) ? each(cost.EncodeSeconds(name, kElements)) : kNone;
    });
  }
  AddRow(table, "pack", costs,
         [&](const CostModel& cost) { return each(cost.pack_seconds(kElements)); });
  AddRow(table, "decompress (clear)", costs,
         [&](const CostModel& cost) { return each(cost.clear_seconds(kElements)); });
  AddRow(table, "decompress, ns a received entry", costs,
         [](const CostModel& cost) { return fmt::format("{:.3f}", 1e9 * cost.seconds_per_entry); });
  AddRow(table, "dispatch, µs", costs,
         [](const CostModel& cost) { return fmt::format("{:.3f}", 1e6 * cost.dispatch_seconds); });
  AddRow(table, "dispatch of an exchange, µs", costs, [](const CostModel& cost) {
    return fmt::format("{:.3f}", 1e6 * cost.exchange_dispatch_seconds);
  });
  table.caption = "Selection and encoding with error feedback. Each rank of several at once.";
  return table;
}

void AddLinkRow(Table& table, const CellConfig& config, const std::string& workload,
                const MeasuredLink& link) {
  std::vector<std::string> row = {workload, RanksName(config), LinkName(config), link.link_class};
  const auto& fit = link.fit;
  if (!fit) {
    row.resize(table.columns.size(), kNone);
  } else {
    const double t = StudentTQuantile(0.5 + kConfidence / 2, static_cast<double>(fit->points) - 2);
    row.push_back(WithInterval(fit->alpha_seconds, t * fit->alpha_standard_error, 1e-6));
    row.push_back(
        WithInterval(fit->seconds_per_byte, t * fit->seconds_per_byte_standard_error, 1e-9));
    row.push_back(fmt::format("{:.2f}", 8e-9 / fit->seconds_per_byte));
    row.push_back(fmt::format("{:.1f} %", 100 * fit->rms_relative_residual));
    row.push_back(fmt::format("{:+.1f} %", 100 * fit->worst_relative_residual));
    row.push_back(fmt::format("{:.4f}", fit->r_squared));
    row.push_back(std::to_string(fit->points));
  }
  table.rows.push_back(std::move(row));
}

Table Links(const ProfileOutcomes& outcomes, const WorkloadNames& names) {
  Table table{.title = "Links, seconds = alpha + beta * bytes a round",
              .columns = {"workload", "ranks", "link", "class", "alpha, µs", "beta, ns/byte",
                          "Gbit/s", "RMS residual", "worst residual", "R²", "points"}};
  for (const ProfileOutcome& outcome : outcomes) {
    for (const auto* link : {&outcome.profile.link, &outcome.profile.node_link}) {
      if (*link) AddLinkRow(table, outcome.config, names(outcome.config), **link);
    }
  }
  table.caption =
      "Fitted to relative errors over message sizes; ± half a 95 % interval, from the residuals: a "
      "link that is no straight line has wide ones. The model computes with the measured curve.";
  return table;
}

}  // namespace

std::vector<Table> ProfileTables(const ProfileOutcomes& outcomes) {
  const WorkloadNames names(outcomes);
  std::vector<Table> tables = {Passes(outcomes, names), SlowestTensors(outcomes, names),
                               Kernels(outcomes, names)};
  Table links = Links(outcomes, names);
  if (!links.rows.empty()) tables.push_back(std::move(links));
  return tables;
}

}  // namespace sparfuse::harness
