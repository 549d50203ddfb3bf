#include "harness/report/figures/panels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/tables/columns.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Keys = std::vector<std::string>;
using Fields = std::vector<std::pair<std::string, json>>;  // in order of their keys' weight

// The keys in which cells of one panel differ, and the one of them that stands on its axis.
struct Layout {
  Keys inside;
  std::string axis = {};
};

std::optional<Layout> LayoutOf(const json& figure) {
  const std::string x = AxisOf(figure);
  const std::map<std::string, Layout> layouts = {
      {"ablation", {{x, "method"}, x}},
      {"breakdown", {{"label"}}},
      {"bytes", {{"label"}}},
      {"convergence", {{"label"}}},
      {"dual_line", {{x}}},
      {"gantt", {{"label"}}},
      {"grouped_bars", {{x, SeriesKeyOf(figure)}, x}},
      {"normalised_bars", {{"workload", "method"}, "workload"}},
      {"scaling", {{"workers", "label"}, "workers"}},
      {"sensitivity", {{"method", "inputs"}}},
      {"slopes", {{x, "label"}, x}},
      {"waiting", {{"sparsifier"}}}};
  const auto found = layouts.find(figure["kind"]);
  return found == layouts.end() ? std::nullopt : std::optional(found->second);
}

bool Has(const Keys& keys, const std::string& key) {
  return std::ranges::find(keys, key) != keys.end();
}

json ValuesOf(const Cell& cell, const Keys& keys) {
  json values = json::array();
  for (const std::string& key : keys) values.push_back(ValueOf(cell, key));
  return values;
}

using Cells = std::vector<const Cell*>;

std::set<json> DistinctOf(const Cells& cells, const std::string& key) {
  std::set<json> values;
  for (const Cell* cell : cells) values.insert(ValueOf(*cell, key));
  return values;
}

// The keys in which panels differ, so that no two cells share a place.
Keys SplittingKeys(const Cells& cells, const Keys& inside) {
  Keys keys;
  if (!Has(inside, "workload") && DistinctOf(cells, "workload").size() > 1)
    keys.emplace_back("workload");  // workloads have different units
  for (;;) {
    struct Place {
      json at;
      Cells cells;
    };
    std::vector<Place> places;
    for (const Cell* cell : cells) {
      json at = json::array({ValuesOf(*cell, keys), ValuesOf(*cell, inside)});
      auto place = std::ranges::find_if(places, [&](const Place& each) { return each.at == at; });
      if (place == places.end()) place = places.insert(places.end(), {std::move(at), {}});
      place->cells.push_back(cell);
    }
    const auto crowded =
        std::ranges::find_if(places, [](const Place& place) { return place.cells.size() > 1; });
    if (crowded == places.end()) return keys;
    const auto known = PanelKeys();
    const auto next = std::ranges::find_if(known, [&](const std::string& key) {
      return !Has(keys, key) && !Has(inside, key) && DistinctOf(crowded->cells, key).size() > 1;
    });
    if (next == known.end()) return keys;
    keys.push_back(*next);
  }
}

// null if the cells differ in it.
json CommonOf(const Cells& cells, const std::string& key) {
  const std::set<json> values = DistinctOf(cells, key);
  return values.size() == 1 ? *values.begin() : json();
}

std::string InFull(const std::optional<LinkShape>& link) {
  return link ? LinkWordsInFull(*link) : "unshaped link";
}

std::string FieldWords(const std::string& key, const json& value, bool full_link) {
  return key == "link" && full_link ? InFull(StoredLink(value)) : KeyWords(key, value);
}

// The words that set a panel apart beside its workload. Workers, link and mode always are among
// them, unless they stand on the axis or cells differ in them.
std::string RestOf(const Fields& fields, const Cells& cells, const std::string& axis,
                   bool full_link) {
  std::map<std::string, json> said(fields.begin(), fields.end());
  if (const json workers = CommonOf(cells, "workers"); axis != "workers" && !workers.is_null())
    said.emplace("workers", workers);
  if (axis != "link" && DistinctOf(cells, "link").size() == 1)
    said.emplace("link", CommonOf(cells, "link"));
  const std::string cluster = DeclaredClusterOf(cells.front()->config);
  const bool one_cluster = !cluster.empty() && DistinctOf(cells, "cluster").size() == 1;
  const bool names_cluster = one_cluster && !said.contains("cluster");
  if (names_cluster && said.contains("link") && said["link"].is_null()) said.erase("link");
  Keys words;
  const auto say = [&](const std::string& key) {
    const auto found = said.find(key);
    if (found == said.end() || key == "workload" || key == axis) return;
    words.push_back(FieldWords(key, found->second, full_link));
  };
  say("workers");
  say("link");
  for (const auto& [key, value] : fields)
    if (key != "workers" && key != "link") say(key);
  if (names_cluster) words.push_back("cluster " + cluster);
  if (!said.contains("mode")) {
    Keys modes;
    for (const json& mode : DistinctOf(cells, "mode")) modes.push_back(mode);
    words.push_back(fmt::format("{}", fmt::join(modes, " and ")));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

Panel MakePanel(const Fields& fields, std::vector<std::size_t> positions, const PartResult& result,
                const std::string& axis) {
  Cells cells;
  for (const std::size_t i : positions) cells.push_back(result.cells[i].cell);
  Panel panel{std::move(positions)};
  if (axis != "workload") {
    Keys workloads;
    for (const json& name : DistinctOf(cells, "workload")) workloads.push_back(name);
    panel.head = fmt::format("{}", fmt::join(workloads, ", "));
  }
  panel.rest = RestOf(fields, cells, axis, false);
  const std::string in_full = RestOf(fields, cells, axis, true);
  panel.heading = panel.head + (panel.head.empty() || in_full.empty() ? "" : ", ") + in_full;
  return panel;
}

// The cells that a figure puts into panels.
std::vector<std::size_t> PlacedCells(const json& figure, const PartResult& result) {
  auto shown = figure["cells"].get<std::vector<std::size_t>>();
  const std::string kind = figure["kind"];
  std::erase_if(shown, [&](std::size_t i) {
    const Cell& cell = *result.cells[i].cell;
    return (kind == "scaling" && !cell.config.modelled()) ||
           (kind == "dual_line" && ValueOf(cell, AxisOf(figure)).is_null());
  });
  return shown;
}

// A panel a method, in order of appearance.
std::vector<std::vector<std::size_t>> SplitByMethod(const std::vector<std::size_t>& cells,
                                                    const PartResult& result) {
  std::vector<std::vector<std::size_t>> groups;
  for (const std::size_t i : cells) {
    const std::string& method = result.cells[i].cell->config.method;
    auto group = std::ranges::find_if(groups, [&](const auto& each) {
      return result.cells[each.front()].cell->config.method == method;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {{}});
    group->push_back(i);
  }
  return groups;
}

}  // namespace

json ToJson(const Panel& panel) {
  return {{"cells", panel.cells},
          {"head", panel.head},
          {"rest", panel.rest},
          {"heading", panel.heading}};
}

std::vector<Panel> PanelsOf(const json& figure, const PartResult& result) {
  const auto layout = LayoutOf(figure);
  if (!layout) return {};
  const std::vector<std::size_t> placed = PlacedCells(figure, result);
  Cells cells, sparse;
  for (const std::size_t i : placed) {
    cells.push_back(result.cells[i].cell);
    if (!IsDense(cells.back()->config)) sparse.push_back(cells.back());
  }
  const Keys keys = SplittingKeys(cells, layout->inside);
  const auto of_sparsity = SparsityKeys();
  const auto is_of_sparsity = [&](const std::string& key) {
    return std::ranges::find(of_sparsity, key) != of_sparsity.end();
  };
  const bool by_sparsity = std::ranges::any_of(keys, is_of_sparsity) && !sparse.empty();
  std::vector<Fields> found;
  for (const Cell* cell : by_sparsity ? sparse : cells) {
    Fields fields;
    for (const std::string& key : keys) fields.emplace_back(key, ValueOf(*cell, key));
    if (std::ranges::find(found, fields) == found.end()) found.push_back(std::move(fields));
  }
  std::vector<json> workloads;  // in order of appearance
  for (const Fields& fields : found)
    if (Has(keys, "workload")) workloads.push_back(fields.front().second);
  std::ranges::stable_sort(found, [&](const Fields& one, const Fields& other) {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const json &a = one[k].second, &b = other[k].second;
      if (a == b) continue;
      if (keys[k] == "workload")
        return std::ranges::find(workloads, a) < std::ranges::find(workloads, b);
      return Before(a, b);
    }
    return false;
  });
  std::vector<Panel> panels;
  for (const Fields& fields : found) {
    std::vector<std::size_t> inside;
    for (const std::size_t i : placed) {
      const Cell& cell = *result.cells[i].cell;
      const bool stands_in = std::ranges::all_of(fields, [&](const auto& field) {
        return (is_of_sparsity(field.first) && IsDense(cell.config)) ||
               ValueOf(cell, field.first) == field.second;
      });
      if (stands_in) inside.push_back(i);
    }
    std::vector<std::vector<std::size_t>> groups = {inside};
    if (figure["kind"] == "waiting") groups = SplitByMethod(inside, result);
    for (auto& group : groups)
      panels.push_back(MakePanel(fields, std::move(group), result, layout->axis));
  }
  return panels;
}

std::string AxisOf(const json& figure) {
  const std::string kind = figure["kind"];
  const char* usual = kind == "slopes"            ? "cluster"
                      : kind == "normalised_bars" ? "workload"
                                                  : "workers";
  const std::string x = figure.value("x", usual);
  return x == "link_gbps" ? "link" : x;
}

std::string MetricOf(const json& figure) {
  const char* usual = figure["kind"] == "normalised_bars" ? "final_metric" : "throughput";
  return figure.value("y", figure.value("metric", usual));
}

std::string SeriesKeyOf(const json& figure) {
  const std::string series = figure.value("series", "method"), x = AxisOf(figure);
  const bool methods =
      series == "method" && !x.starts_with("method_options") && !x.starts_with("sparsifier");
  return methods ? "label" : series == "link_gbps" ? "link" : series;
}

std::string AxisWords(const std::string& key) {
  const GivenKey* known = FindCellKey(key);
  if (known != nullptr && !known->column.empty()) return known->column;
  std::string words = key.substr(key.rfind('.') + 1);
  std::ranges::replace(words, '_', ' ');
  return words;
}

json ValueOf(const Cell& cell, const std::string& key) {
  if (key == "label") return cell.label;
  if (key == "workload") return WorkloadLabel(cell.config.workload);
  return KeyValue(cell.json, {key, ""});
}

std::string TickText(const std::string& key, const Cell& cell) {
  const json value = ValueOf(cell, key);
  if (key == "link") return LinkText(cell.config);
  if (value.is_number()) return fmt::format("{:g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string LinkText(const CellConfig& config) {
  const bool own = !config.link && !DeclaredClusterOf(config).empty();
  return own ? "the cluster's own" : LinkWords(config.link);
}

std::string LinkInFull(const CellConfig& config) {
  const bool own = !config.link && !DeclaredClusterOf(config).empty();
  return own ? "the cluster's own links" : InFull(config.link);
}

bool Before(const json& one, const json& other) {
  const auto weight = [](const json& value) {
    if (value.is_object() && value.contains("gbps"))
      return std::tuple(0, value["gbps"].get<double>(), value.dump());
    if (value.is_null()) return std::tuple(2, 0.0, std::string());
    if (value.is_number()) return std::tuple(0, value.get<double>(), std::string());
    return std::tuple(1, 0.0, value.is_string() ? value.get<std::string>() : value.dump());
  };
  return weight(one) < weight(other);
}

std::string DeclaredClusterOf(const CellConfig& config) {
  return IsOwnCluster(config.cluster) ? "" : config.cluster;
}

bool IsDense(const CellConfig& config) {
  return config.sparsifier == "none" || config.density >= 1;
}

}  // namespace sparfuse::harness
