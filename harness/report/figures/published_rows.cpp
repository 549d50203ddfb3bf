// Reads the published numbers of a figure's entry, and finds the cells and panels with which each
// is drawn.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "core/base/expression.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The mean in "925.020 +- 4.42"; nothing for a range.
std::optional<double> NumberIn(const std::string& text) {
  const std::string mean = text.substr(0, text.find(" +- "));
  double value = 0;
  const auto [end, error] = std::from_chars(mean.data(), mean.data() + mean.size(), value);
  return error == std::errc() && end == mean.data() + mean.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::optional<int> CountIn(const std::string& text) {
  const auto digits = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && std::ranges::all_of(text, digits) ? std::optional(std::stoi(text))
                                                            : std::nullopt;
}

std::optional<double> SpeedIn(const std::string& network) {
  static const Expression kSpeed(R"((\d+(?:\.\d+)?)\s*Gbps)", "a link's speed");
  std::vector<std::string_view> found;
  if (!kSpeed.Find(network, found)) return std::nullopt;
  return std::stod(std::string(found[1]));
}

std::string HardwareIn(std::string network) {
  if (network.starts_with("not stated") || network.starts_with("n/s")) return "";
  std::ranges::replace(network, ';', ',');
  return network;
}

// The confidence without remarks: "digitised".
std::string HowObtained(const std::string& confidence) {
  std::string how = confidence.substr(0, confidence.find_first_of(";("));
  return how.erase(how.find_last_not_of(' ') + 1);
}

// Whether a cluster was fitted to this very number.
bool IsCalibration(const json& row, const std::string& paper, const std::set<std::string>& inputs) {
  const auto text = [&](const char* key) { return row[key].get<std::string>(); };
  const std::string name = fmt::format("{}/{}/{}", paper, text("artifact"), text("method"));
  const std::string one =
      fmt::format("{}/{}/{}/{}", name, text("model"), text("workers"), text("network"));
  return inputs.contains(name) || inputs.contains(one) ||
         inputs.contains(fmt::format("{}/{}", one, text("density")));
}

// A value that the paper does not state agrees with any.
template <class Value>
bool Agrees(const std::optional<Value>& theirs, const Value& ours) {
  return !theirs || *theirs == ours;
}

}  // namespace

bool StatedSetting::Fits(const CellConfig& config, const std::string& x) const {
  if (x != "workers" && !Agrees(workers, config.workers)) return false;
  if (!Agrees(batch_per_worker, config.batch_per_worker)) return false;
  if (!IsDense(config)) {
    if (x != "density" && !Agrees(density, config.density)) return false;
    const bool any = x == "sparsifier" || sparsifier.empty();
    if (!any && sparsifier != PlainName(config.sparsifier)) return false;
  }
  return x == "link" || !config.link || Agrees(gbps, config.link->gbps);
}

std::vector<std::size_t> ImportedFor(const PartResult& part, const CellConfig& config) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < part.imported.size(); ++i) {
    const TrialRow& row = *part.imported[i].any;
    const auto number = [&]<class Number>(const char* key, std::optional<Number>& of) {
      const json stated = row.config.value(key, json());
      if (stated.is_number()) of = stated.get<Number>();
    };
    StatedSetting setting{.workers = row.workers};
    number("batch_per_worker", setting.batch_per_worker);
    number("density", setting.density);
    number("network_gbps", setting.gbps);
    const json sparsifier = row.config.value("sparsifier", json());
    if (sparsifier.is_string()) setting.sparsifier = PlainName(sparsifier.get<std::string>());
    if (row.method == config.method &&
        WorkloadLabel(row.workload) == WorkloadLabel(config.workload) && setting.Fits(config)) {
      found.push_back(i);
    }
  }
  return found;
}

json PublishedRow::Place(const std::string& x) const {
  if (x == "workers") return OrNull(setting.workers);
  if (x == "density") return OrNull(setting.density);
  if (x == "link") return OrNull(setting.gbps);
  if (x == "workload" && !workload.empty()) return workload;
  return x == "sparsifier" && !setting.sparsifier.empty() ? json(setting.sparsifier) : json();
}

std::optional<StatedGain> GainOf(const PublishedRow& row) {
  constexpr std::string_view kVersus = " vs ";
  const std::size_t at = row.method.find(kVersus);
  if (!row.stated || at == std::string::npos || !row.value || row.unit != "%") return std::nullopt;
  return StatedGain{row.method.substr(0, at), row.method.substr(at + kVersus.size()),
                    1 + *row.value / 100};
}

std::string PlainName(const std::string& name) {
  std::string plain;
  for (const char c : name.substr(0, name.find_first_of("@("))) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) plain += static_cast<char>(std::tolower(byte));
  }
  return plain;
}

PublishedRows::PublishedRows(const json& figure, const PartResult& result,
                             const std::vector<std::string>& calibration) {
  if (!figure.contains("published")) return;
  const json& published = figure["published"];
  paper_ = published["paper"];
  methods_ = published["methods"];
  const auto shown = figure["cells"].get<std::vector<std::size_t>>();
  std::set<std::string> inputs;
  if (std::ranges::any_of(shown, [&](std::size_t i) {
        return !DeclaredClusterOf(result.cells[i].cell->config).empty();
      })) {
    inputs.insert(calibration.begin(), calibration.end());
  }
  for (const json& given : published["rows"]) {
    const auto text = [&](const char* key) { return given.value(key, std::string()); };
    const std::string confidence = text("confidence");
    PublishedRow& row = rows_.emplace_back();
    row.position = rows_.size() - 1;
    row.artifact = text("artifact");
    row.model = text("model");
    row.method = text("method");
    row.metric = text("metric");
    row.printed = text("value");
    row.unit = text("unit");
    row.ours = OursOf(row.method);
    if (!given["of"].is_null()) row.workload = WorkloadLabel(given["of"].get<std::string>());
    row.hardware = HardwareIn(text("network"));
    row.cluster = text("cluster");
    row.value = NumberIn(row.printed);
    row.setting = {.workers = CountIn(text("workers")),
                   .density = NumberIn(text("density")),
                   .gbps = SpeedIn(text("network")),
                   .sparsifier = PlainName(text("sparsifier"))};
    row.stated = given.value("stated", false);
    row.from_text = confidence.starts_with("verbatim");
    row.apart = !row.cluster.empty() && confidence.find("; ") != std::string::npos;
    row.calibrated = IsCalibration(given, paper_, inputs);
    const std::string how = HowObtained(confidence);
    if (std::ranges::find(obtained_, how) == obtained_.end()) obtained_.push_back(how);
  }
}

std::string PublishedRows::OursOf(const std::string& method) const {
  for (const auto& [ours, names] : methods_.items())
    if (std::ranges::find(names, json(method)) != names.end()) return ours;
  return "";
}

bool PublishedRows::Fits(const PublishedRow& row, const CellConfig& config, const std::string& x) {
  const bool may_differ = x == "cluster" || row.cluster.empty() || config.cluster.empty();
  return (may_differ || row.cluster == config.cluster) && row.setting.Fits(config, x);
}

PublishedRows::Placed PublishedRows::PlacedIn(const std::vector<Panel>& panels,
                                              const PartResult& result,
                                              const std::string& x) const {
  using Rows = std::vector<const PublishedRow*>;
  Placed placed{std::vector<Rows>(panels.size()), {}};
  std::vector<std::pair<std::pair<std::string, std::string>, Rows>> artifacts;
  for (const PublishedRow& row : rows_) {
    if (row.stated || row.apart) continue;
    const std::pair name(row.workload, row.artifact);
    auto at = std::ranges::find(artifacts, name, [](const auto& each) { return each.first; });
    if (at == artifacts.end()) at = artifacts.insert(artifacts.end(), {name, {}});
    at->second.push_back(&row);
  }
  for (const auto& [name, rows] : artifacts) {
    std::map<std::size_t, Rows> fitting;  // by panel of the workload
    bool any = false;
    for (std::size_t p = 0; p < panels.size(); ++p) {
      const auto config = [&](std::size_t i) -> const CellConfig& {
        return result.cells[i].cell->config;
      };
      if (std::ranges::none_of(panels[p].cells, [&](std::size_t i) {
            return rows.front()->IsOf(WorkloadLabel(config(i).workload));
          })) {
        continue;
      }
      std::ranges::copy_if(rows, std::back_inserter(fitting[p]), [&](const PublishedRow* row) {
        return std::ranges::any_of(panels[p].cells,
                                   [&](std::size_t i) { return Fits(*row, config(i), x); });
      });
      any = any || !fitting[p].empty();
    }
    if (!fitting.empty() && !any)
      placed.elsewhere.insert(placed.elsewhere.end(), rows.begin(), rows.end());
    for (auto& [p, some] : fitting) {
      const Rows& chosen = any ? some : rows;
      placed.of_panels[p].insert(placed.of_panels[p].end(), chosen.begin(), chosen.end());
    }
  }
  return placed;
}

std::string PublishedRows::Artifacts() const {
  std::map<std::string, std::vector<std::string>> models;
  for (const PublishedRow& row : rows_) {
    auto& of = models[row.artifact];
    if (std::ranges::find(of, row.model) == of.end()) of.push_back(row.model);
  }
  std::vector<std::string> words;
  for (const auto& [name, of] : models)
    words.push_back(fmt::format("{} ({})", name, fmt::join(of, "/")));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string PublishedRows::Source() const {
  if (rows_.empty()) return "";
  return fmt::format("Published: {}, {}; {}.", paper_, Artifacts(), fmt::join(obtained_, " and "));
}

std::string SettingsThatDiffer(const std::vector<const PublishedRow*>& elsewhere) {
  if (elsewhere.empty()) return "";
  std::vector<std::pair<std::string, std::set<int>>> workers;  // by hardware
  for (const PublishedRow* row : elsewhere) {
    const std::string hardware = row->hardware.empty() ? "unstated hardware" : row->hardware;
    auto at = std::ranges::find(workers, hardware, [](const auto& each) { return each.first; });
    if (at == workers.end()) at = workers.insert(workers.end(), {hardware, {}});
    if (row->setting.workers) at->second.insert(*row->setting.workers);
  }
  std::vector<std::string> words;
  for (const auto& [hardware, counts] : workers) {
    const std::string span = counts.size() < 2
                                 ? fmt::format("{}", fmt::join(counts, ""))
                                 : fmt::format("{} to {}", *counts.begin(), *counts.rbegin());
    words.push_back(counts.empty() ? hardware : fmt::format("{} workers, {}", span, hardware));
  }
  return fmt::format("The paper's setting differs: {}.", fmt::join(words, "; "));
}

void DescribePublished(json& figure, const PublishedRows& published,
                       const std::vector<const PublishedRow*>& elsewhere) {
  json& given = figure["published"];
  given["source"] = published.Source();
  given["artifacts"] = published.Artifacts();
  given["elsewhere"] = SettingsThatDiffer(elsewhere);
  for (const PublishedRow& row : published.rows()) {
    std::string setting = row.model;
    if (row.setting.workers) setting += fmt::format(", {} workers", *row.setting.workers);
    if (!row.hardware.empty()) setting += ", " + row.hardware;
    given["rows"][row.position].update({{"name", row.name()},
                                        {"of", row.workload.empty() ? json() : json(row.workload)},
                                        {"number", OrNull(row.value)},
                                        {"from_text", row.from_text},
                                        {"calibrated", row.calibrated},
                                        {"setting", setting}});
  }
}

bool IsCalibrating(const json& figure, std::size_t cell) {
  const auto found = figure.find("calibrating");
  return found != figure.end() && std::ranges::find(*found, json(cell)) != found->end();
}

}  // namespace sparfuse::harness
