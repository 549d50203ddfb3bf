#include "harness/report/tables/profile_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "harness/clusters/profile_data.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using nlohmann::operator""_json_pointer;

constexpr std::size_t kElements = 1'000'000;
constexpr double kDensity = 0.01;
constexpr std::size_t kSlowest = 5;

std::string LinkName(const json& config) {
  const json& link = config.at("link");
  if (link.is_null()) return "own";
  const auto shape = StoredLink(link).value_or(LinkShape());
  return fmt::format("{:g} Gbit/s, {:g} µs{} (emulated)", shape.gbps, shape.alpha_us,
                     shape.has_within() ? fmt::format("; within nodes {:g} Gbit/s, {:g} µs",
                                                      shape.intra_node_gbps, shape.intra_node_us)
                                        : "");
}

// Names the workloads of outcomes so that two in which anything else differs can be told apart.
class WorkloadNames {
 public:
  explicit WorkloadNames(const json& outcomes) {
    static const std::set<std::string> kShownAnyway = {
        "workload",           "workers", "link.gbps", "link.alpha_us",
        "threads_per_worker", "device",  "precision"};
    std::vector<json> configs;
    for (const json& outcome : outcomes) configs.push_back(outcome.at("config"));
    for (KeyColumn& column : KeyColumnsOf(configs)) {
      if (!kShownAnyway.contains(column.path)) keys_.push_back(std::move(column));
    }
  }

  // "text-gpt, cuda, batch 16": also where it was computed and how, unless on the host in float32.
  std::string operator()(const json& config) const {
    std::string name = config.at("workload");
    for (const auto& [key, usual] : {std::pair{"device", "cpu"}, {"precision", "fp32"}}) {
      if (config.value(key, usual) != usual) name += ", " + config.value(key, usual);
    }
    for (const KeyColumn& key : keys_) {
      name += fmt::format(", {} {}", key.title, KeyText(config, key));
    }
    return name;
  }

 private:
  std::vector<KeyColumn> keys_;
};

std::string RanksName(const json& config) {
  const std::string threads =
      config.at("threads_per_worker") == 1
          ? ""
          : fmt::format(" x {} threads", config["threads_per_worker"].dump());
  return config.at("workers").dump() + threads;
}

// "12.34 ± 0.10", in units of `unit` seconds; half: half of the interval.
std::string WithInterval(double value, double half, double unit = 1) {
  const double shown = half / unit;
  const int digits =
      shown > 0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(shown))), 0, 4) : 3;
  return fmt::format("{:.{}f} ± {:.{}f}", value / unit, digits, shown, digits);
}

// A number of the profile with its interval, from "relative_errors".
std::string Measured(const json& profile, const std::string& place, double unit) {
  const double value = profile.at(json::json_pointer(place));
  const json errors = profile.value("relative_errors", json::object());
  const double z = StudentTQuantile(0.5 + kConfidence / 2, 1e6);
  return WithInterval(value, z * errors.value(place, 0.0) * value, unit);
}

Table Passes(const json& outcomes, const WorkloadNames& names) {
  Table table;
  table.title = "Passes, ms";
  table.columns = {"workload", "ranks",      "link",   "n",   "forward",
                   "backward", "with hooks", "update", "load"};
  for (const json& outcome : outcomes) {
    const json& config = outcome.at("config");
    const json& profile = outcome.at("profile");
    const json load = outcome.value("/machine/load_before"_json_pointer, json());
    const auto cell = [&](const char* place) { return Measured(profile, place, 1e-3); };
    table.rows.push_back({names(config), RanksName(config), LinkName(config),
                          profile.at("backward").at("steps").dump(),
                          cell("/backward/forward_seconds"), cell("/backward/unhooked_seconds"),
                          cell("/backward/hooked_seconds"), cell("/backward/update_seconds"),
                          load.is_null() ? kNone : fmt::format("{:.1f}", load.get<double>())});
  }
  table.caption =
      "Medians over n passes, mean over ranks that run at once, ± half a 95 % interval. Tensors' "
      "times, seen by hooks, are scaled to the total without hooks. load: of the minute before; "
      "above 0.3, other work disturbed the measurement.";
  return table;
}

Table SlowestTensors(const json& outcomes, const WorkloadNames& names) {
  Table table;
  table.title = "Slowest tensors in backward";
  table.columns = {"workload", "tensor", "elements", "ms", "of backward"};
  std::set<json> shown;
  for (const json& outcome : outcomes) {
    const json& backward = outcome.at("profile").at("backward");
    const std::string workload = names(outcome.at("config"));
    if (!shown.insert(workload).second) continue;
    std::vector<json> tensors = backward.at("tensors");
    const auto seconds = [](const json& tensor) { return tensor.at("seconds").get<double>(); };
    const std::size_t count = std::min(kSlowest, tensors.size());
    std::partial_sort(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(count),
                      tensors.end(),
                      [&](const json& a, const json& b) { return seconds(a) > seconds(b); });
    for (std::size_t i = 0; i < count; ++i) {
      table.rows.push_back(
          {workload, tensors[i].at("name"), tensors[i].at("numel").dump(),
           fmt::format("{:.3f}", 1e3 * seconds(tensors[i])),
           fmt::format("{:.1f} %",
                       100 * seconds(tensors[i]) / backward.at("unhooked_seconds").get<double>())});
    }
  }
  table.caption = "Of the first row of each workload above.";
  return table;
}

std::string ColumnName(const json& config, const WorkloadNames& names) {
  return names(config) + " x" + RanksName(config) + (config.at("link").is_null() ? "" : ", shaped");
}

// Adds a row with what `cell` makes of each outcome's costs.
template <class Cell>
void AddRow(Table& table, const std::string& name, const std::vector<CostModel>& costs,
            const Cell& cell) {
  std::vector<std::string> row = {name};
  for (const CostModel& cost : costs) row.push_back(cell(cost));
  table.rows.push_back(std::move(row));
}

Table Kernels(const json& outcomes, const WorkloadNames& names) {
  Table table;
  table.title = fmt::format("Kernels, ns an element of {:g} million at density {}",
                            1e-6 * static_cast<double>(kElements), kDensity);
  table.columns = {"kernel"};
  std::vector<CostModel> costs;
  std::set<std::string> sparsifiers;
  std::set<std::string> quantizers;
  for (const json& outcome : outcomes) {
    table.columns.push_back(ColumnName(outcome.at("config"), names));
    costs.push_back(KernelCosts(outcome.at("profile")));
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

void AddLinkRow(Table& table, const json& config, const std::string& workload, const json& link) {
  std::vector<std::string> row = {workload, RanksName(config), LinkName(config), link.at("class")};
  const json& fit = link.at("fit");
  if (fit.is_null()) {
    row.resize(table.columns.size(), kNone);
  } else {
    const double t = StudentTQuantile(0.5 + kConfidence / 2, fit.at("points").get<double>() - 2);
    const auto interval = [&](const char* value, const char* error, double unit) {
      return WithInterval(fit.at(value), t * fit.at(error).get<double>(), unit);
    };
    row.push_back(interval("alpha_seconds", "alpha_standard_error", 1e-6));
    row.push_back(interval("seconds_per_byte", "seconds_per_byte_standard_error", 1e-9));
    row.push_back(fmt::format("{:.2f}", 8e-9 / fit.at("seconds_per_byte").get<double>()));
    row.push_back(fmt::format("{:.1f} %", 100 * fit.at("rms_relative_residual").get<double>()));
    row.push_back(fmt::format("{:+.1f} %", 100 * fit.at("worst_relative_residual").get<double>()));
    row.push_back(fmt::format("{:.4f}", fit.at("r_squared").get<double>()));
    row.push_back(fit.at("points").dump());
  }
  table.rows.push_back(std::move(row));
}

Table Links(const json& outcomes, const WorkloadNames& names) {
  Table table;
  table.title = "Links, seconds = alpha + beta * bytes a round";
  table.columns = {"workload",      "ranks",  "link",         "class",          "alpha, µs",
                   "beta, ns/byte", "Gbit/s", "RMS residual", "worst residual", "R²",
                   "points"};
  for (const json& outcome : outcomes) {
    for (const char* key : {"link", "node_link"}) {
      if (outcome.at("profile").contains(key)) {
        const json& config = outcome.at("config");
        AddLinkRow(table, config, names(config), outcome.at("profile").at(key));
      }
    }
  }
  table.caption =
      "Fitted to relative errors over message sizes; ± half a 95 % interval, from the residuals: a "
      "link that is no straight line has wide ones. The model computes with the measured curve.";
  return table;
}

}  // namespace

std::vector<Table> ProfileTables(const json& outcomes) {
  const WorkloadNames names(outcomes);
  std::vector<Table> tables = {Passes(outcomes, names), SlowestTensors(outcomes, names),
                               Kernels(outcomes, names)};
  Table links = Links(outcomes, names);
  if (!links.rows.empty()) tables.push_back(std::move(links));
  return tables;
}

}  // namespace sparfuse::harness
