#include "harness/experiment/claims_and_figures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/options.hpp"
#include "harness/catalog/metrics.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

const std::vector<std::pair<std::string, Comparison>>& Comparisons() {
  static const std::vector<std::pair<std::string, Comparison>> kComparisons = {
      {"less", Comparison::kLess},
      {"at_most", Comparison::kAtMost},
      {"at_least", Comparison::kAtLeast},
      {"more", Comparison::kMore}};
  return kComparisons;
}

const std::vector<std::pair<std::string, Comparison>>& BoundKeys() {
  static const std::vector<std::pair<std::string, Comparison>> kKeys = {
      {"equals", Comparison::kEquals},
      {"less_than", Comparison::kLess},
      {"at_most", Comparison::kAtMost},
      {"at_least", Comparison::kAtLeast},
      {"more_than", Comparison::kMore}};
  return kKeys;
}

const json& RequiredTable(const TomlFile& file, const std::string& pointer) {
  const json* table = file.Find(pointer);
  if (table == nullptr || !table->is_object() || table->empty()) {
    file.FailValue(pointer, "{ key = value, ... }: the cell that a [[claim]] is about");
  }
  file.CheckKeys(pointer, "[[claim]]", CellKeyNames());
  return *table;
}

std::vector<std::size_t> CellsThatMatch(const json& wanted, const Part& part) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < part.cells.size(); ++i) {
    bool all = true;
    for (const auto& [key, value] : wanted.items()) {
      all = all && Matches(value, part.cells[i].json.at(key));
    }
    if (all) found.push_back(i);
  }
  return found;
}

std::size_t OnlyCell(const TomlFile& file, const std::string& pointer, const json& wanted,
                     const Part& part) {
  const auto found = CellsThatMatch(wanted, part);
  if (found.size() != 1) {
    file.Fail(pointer, fmt::format("[[claim]] {}: matches {} cells: expected exactly one",
                                   wanted.dump(), found.size()));
  }
  return found.front();
}

std::vector<std::string> ReadForEach(const TomlFile& file, const std::string& at) {
  const json* keys = file.Find(at + "/for_each");
  if (keys == nullptr) return {};
  const auto known = CellKeyNames();
  const bool good = keys->is_array() && !keys->empty() &&
                    std::all_of(keys->begin(), keys->end(), [&](const json& key) {
                      return key.is_string() && std::find(known.begin(), known.end(),
                                                          key.get<std::string>()) != known.end();
                    });
  if (!good)
    file.FailValue(at + "/for_each", "a list of keys of cells: [\"workload\", \"workers\"]");
  return keys->get<std::vector<std::string>>();
}

double AnyNumber(const TomlFile& file, const std::string& pointer) {
  const json* value = file.Find(pointer);
  if (!value->is_number()) file.FailValue(pointer, "a number");
  return value->get<double>();
}

// stated, figure and judge: the paper's number.
void ReadStated(const TomlFile& file, const std::string& at, Claim& claim) {
  if (claim.compared == Compared::kValue) {
    file.Fail(at + "/stated", "stated: expected over = { ... } beside it");
  }
  const auto number = [&](const std::string& key) {
    if (claim.compared == Compared::kRatio) return file.Number(at, key, 0, kStatedRatios);
    const double difference = AnyNumber(file, at + "/" + key);
    if (difference == 0) {
      file.FailValue(at + "/" + key, "a difference that is not 0; expect = ... compares with 0");
    }
    return difference;
  };
  claim.stated = number("stated");
  if (file.Find(at + "/figure") != nullptr) claim.figure = number("figure");
  const std::string judge = file.String(at, "judge", "stated");
  if (judge != "stated" && judge != "figure") {
    file.FailValue(at + "/judge", "\"stated\" or \"figure\"");
  }
  claim.judge_figure = judge == "figure";
  if (claim.judge_figure && !claim.figure) file.FailValue(at + "/judge", "figure = ... beside it");
}

void ReadExpect(const TomlFile& file, const std::string& at, Claim& claim) {
  if (claim.compared == Compared::kValue) {
    file.Fail(at + "/expect", "expect: expected over = { ... } beside it");
  }
  const std::string name = file.String(at, "expect", "");
  std::vector<std::string> names;
  for (const auto& [known, comparison] : Comparisons()) {
    names.push_back(known);
    if (known == name) {
      claim.bound = {comparison, claim.compared == Compared::kRatio ? 1.0 : 0.0};
      return;
    }
  }
  file.FailValue(at + "/expect", fmt::format("one of {}", fmt::join(names, ", ")));
}

// Exactly one of the keys that say what is expected.
void ReadExpectation(const TomlFile& file, const std::string& at, Claim& claim) {
  std::vector<std::string> known = {"stated", "expect"};
  for (const auto& [key, comparison] : BoundKeys()) known.push_back(key);
  std::vector<std::string> given;
  for (const auto& key : known) {
    if (file.Find(at + "/" + key) != nullptr) given.push_back(key);
  }
  if (given.size() != 1) {
    file.Fail(at, fmt::format("[[claim]]: {}: expected exactly one of {}",
                              given.empty() ? "nothing is expected"
                                            : fmt::format("{} together", fmt::join(given, ", ")),
                              fmt::join(known, ", ")));
  }
  if (given.front() != "stated") {
    for (const char* key : {"figure", "judge"}) {
      if (file.Find(at + "/" + key) != nullptr) {
        file.FailValue(at + "/" + key, "stated = ... beside it");
      }
    }
  }
  if (given.front() == "stated") return ReadStated(file, at, claim);
  if (given.front() == "expect") return ReadExpect(file, at, claim);
  for (const auto& [key, comparison] : BoundKeys()) {
    if (key == given.front()) claim.bound = {comparison, AnyNumber(file, at + "/" + key)};
  }
}

// "safusion, digits-resnet, workers 2"
std::string SettingText(const std::vector<std::string>& keys, const json& setting) {
  std::string text;
  for (const auto& key : keys) {
    const json& value =
        key == "workload" ? json(WorkloadLabel(setting[key].get<std::string>())) : setting[key];
    text += (text.empty() ? "" : ", ") + (value.is_string() ? value.get<std::string>()
                                          : value.is_null() ? key + " not given"
                                                            : key + " " + value.dump());
  }
  return text;
}

void ReadClaim(const TomlFile& file, const std::string& at, Part& part) {
  file.CheckKeys(at, "[[claim]]", KeysOf("[[claim]]"));
  Claim claim;
  claim.quote = claim.sentence = file.RequiredString(at, "quote");
  claim.metric = file.RequiredString(at, "metric");
  claim.source = file.String(at, "source", "");
  const auto metrics = MetricNames();
  if (std::find(metrics.begin(), metrics.end(), claim.metric) == metrics.end()) {
    file.Fail(at + "/metric", fmt::format("unknown metric \"{}\"{}", claim.metric,
                                          Suggestion(claim.metric, metrics)));
  }
  const json& of = RequiredTable(file, at + "/of");
  const bool pair = file.Find(at + "/over") != nullptr;
  const bool difference = file.Boolean(at, "difference", false);
  if (difference && !pair) file.FailValue(at + "/difference", "over = { ... } beside it");
  claim.compared = difference ? Compared::kDifference : pair ? Compared::kRatio : Compared::kValue;
  ReadExpectation(file, at, claim);

  const auto keys = ReadForEach(file, at);
  std::vector<json> settings;  // what the cells of `of` have of these keys, each once
  for (const std::size_t cell : CellsThatMatch(of, part)) {
    json setting = json::object();
    for (const auto& key : keys) setting[key] = part.cells[cell].json.at(key);
    if (std::find(settings.begin(), settings.end(), setting) == settings.end()) {
      settings.push_back(std::move(setting));
    }
  }
  if (settings.empty()) OnlyCell(file, at + "/of", of, part);  // throws
  for (const json& setting : settings) {
    Claim one = claim;
    one.of = of;
    one.of.update(setting);
    one.of_cell = one.over_cell = OnlyCell(file, at + "/of", one.of, part);
    if (pair) {
      one.over = setting;
      one.over.update(RequiredTable(file, at + "/over"));
      one.over_cell = OnlyCell(file, at + "/over", one.over, part);
      if (one.over_cell == one.of_cell) {
        file.Fail(at + "/over", fmt::format("[[claim]] over = {}: is the cell that `of` is: "
                                            "expected another one to compare it with",
                                            one.over.dump()));
      }
    }
    if (!keys.empty()) {
      one.setting = SettingText(keys, setting);
      one.quote += " (" + one.setting + ")";
    }
    part.claims.push_back(std::move(one));
  }
}

}  // namespace

void ReadClaims(const TomlFile& file, const std::string& pointer, Part& part) {
  const json* claims = file.Find(pointer + "/claim");
  if (claims == nullptr) return;
  if (!claims->is_array()) file.FailValue(pointer + "/claim", "[[claim]] tables");
  for (std::size_t i = 0; i < claims->size(); ++i) {
    ReadClaim(file, pointer + "/claim/" + std::to_string(i), part);
  }
}

namespace {

const FigureKind& KindOf(const TomlFile& file, const std::string& at) {
  const std::string name = file.RequiredString(at, "kind");
  std::vector<std::string> known;
  for (const auto& kind : FigureKinds()) {
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  file.Fail(at + "/kind",
            fmt::format("unknown kind of figure \"{}\"{}", name, Suggestion(name, known)));
}

// [[figure]] keys, and those of `where`, that are keys of a cell choose among the cells.
bool IsFilter(const std::string& key) {
  return key == "link_gbps" || (key != "kind" && FindCellKey(key) != nullptr);
}

// The cells that the figure shows.
std::vector<const Cell*> CellsOf(const TomlFile& file, const std::string& at, const json& figure,
                                 const Part& part) {
  json wanted = json::object();
  for (const auto& [key, value] : figure.items()) {
    if (IsFilter(key)) wanted[key] = value;
  }
  if (figure.contains("where")) {
    if (!figure["where"].is_object()) file.FailValue(at + "/where", "{ key = value, ... }");
    auto known = CellKeyNames();
    known.push_back("link_gbps");
    file.CheckKeys(at + "/where", "where of a figure", known);
    wanted.update(figure["where"]);
  }
  if (figure.contains("methods")) wanted["method"] = figure["methods"];
  std::vector<const Cell*> found;
  for (const Cell& cell : part.cells) {
    const bool all =
        std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& item) {
          if (item.key() != "link_gbps") return Matches(item.value(), cell.json.at(item.key()));
          const auto& link = cell.config.link;
          return Matches(item.value(), link ? json(link->gbps) : json());
        });
    if (all) found.push_back(&cell);
  }
  // Twins of a part's cells are modelled and come later: a filter may mean them alone.
  if (found.empty() && !part.predict) {
    file.Fail(at, fmt::format("[[figure]] shows no cell: none matches {}", wanted.dump()));
  }
  return found;
}

std::vector<std::string> ValuesOf(const std::vector<const Cell*>& cells, const char* key) {
  std::set<std::string> values;
  for (const Cell* cell : cells) values.insert(cell->json[key].get<std::string>());
  return {values.begin(), values.end()};
}

void CheckMetric(const TomlFile& file, const std::string& at, const json& figure) {
  for (const char* key : {"y", "metric"}) {
    if (!figure.contains(key)) continue;
    const auto metrics = MetricNames();
    if (!figure[key].is_string() || std::find(metrics.begin(), metrics.end(),
                                              figure[key].get<std::string>()) == metrics.end()) {
      file.Fail(at + "/" + key, fmt::format("unknown metric {} of a figure{}", Shown(figure[key]),
                                            Suggestion(Shown(figure[key]), metrics)));
    }
  }
}

void CheckMethod(const TomlFile& file, const std::string& at, const char* key,
                 const std::vector<const Cell*>& cells) {
  if (file.Find(at + "/" + key) == nullptr) return;
  const std::string name = file.String(at, key, "");
  const auto known = ValuesOf(cells, "method");
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    file.Fail(at + "/" + key, fmt::format("{} = \"{}\": no cell of the figure has this method{}",
                                          key, name, Suggestion(name, known)));
  }
}

// What a kind cannot do without, which the file may say for the whole part.
void CheckNeeds(const TomlFile& file, const std::string& at, const json& figure, const Part& part,
                const std::vector<const Cell*>& cells) {
  const std::string kind = figure["kind"];
  if ((kind == "sensitivity" || kind == "normalised_bars") && part.reference.empty() &&
      !figure.contains("reference")) {
    file.Fail(at, kind + ": expected reference = a method that others are divided by");
  }
  if (kind == "dual_line" && !figure.contains("x")) {
    file.Fail(at,
              "dual_line: expected x = a key of cells, such as "
              "\"method_options.planner_options.degree\"");
  }
  if (kind == "agreement" && !figure.contains("published"))
    file.Fail(at, "agreement: expected published = { artifacts = ..., networks = ... }");
  if (kind == "ablation" && ValuesOf(cells, "method").size() < 2) {
    file.Fail(at, "ablation: expected cells of two methods or more");
  }
}

// Each of `methods`: one that no cell has would vanish among the others.
void CheckMethods(const TomlFile& file, const std::string& at, const Part& part) {
  const json* methods = file.Find(at + "/methods");
  if (methods == nullptr) return;
  std::set<std::string> known;
  for (const Cell& cell : part.cells) known.insert(cell.config.method);
  const std::vector<std::string> names(known.begin(), known.end());
  for (const json& name : methods->is_array() ? *methods : json::array({*methods})) {
    if (!name.is_string()) file.FailValue(at + "/methods", "a list of methods");
    if (!known.contains(name.get<std::string>())) {
      file.Fail(at + "/methods", fmt::format("methods: no cell of the part has {}{}", Shown(name),
                                             Suggestion(name.get<std::string>(), names)));
    }
  }
}

// "workers", or "method_options.planner_options.degree": a key of cells, or a way into a table of
// one that at least one cell has.
void CheckX(const TomlFile& file, const std::string& at, const std::vector<const Cell*>& cells) {
  const std::string x = file.String(at, "x", "");
  if (x.empty() || x == "link_gbps") return;
  const std::string first = x.substr(0, x.find('.'));
  const auto known = CellKeyNames();
  if (FindCellKey(first) == nullptr) {
    file.Fail(at + "/x",
              fmt::format("x = \"{}\": expected a key of cells{}", x, Suggestion(first, known)));
  }
  std::string path = "/" + x;
  std::replace(path.begin(), path.end(), '.', '/');
  const json::json_pointer where(path);
  if (std::none_of(cells.begin(), cells.end(),
                   [&](const Cell* cell) { return cell->json.contains(where); })) {
    file.Fail(at + "/x", fmt::format("x = \"{}\": no cell of the figure has it", x));
  }
}

void ReadPublishedOfFigure(const TomlFile& file, const std::string& at, const FigureKind& kind,
                           const std::optional<Published>& published,
                           const std::vector<const Cell*>& cells, json& figure) {
  if (!published) {
    file.Fail(at + "/published",
              "published: expected a table [published] with paper = \"...\" in this file");
  }
  if (const std::string x = file.String(at + "/published", "x", ""); !x.empty()) {
    if (figure.value("x", x) != x) {
      file.FailValue(at + "/published/x", fmt::format("the figure's x, {}", Shown(figure["x"])));
    }
    figure["x"] = x;
  }
  const bool gains = figure["kind"] == "ablation" || figure.contains("normalise");
  if (file.Find(at + "/published/stated") != nullptr && !gains) {
    file.FailValue(at + "/published/stated",
                   "a figure of ratios: an ablation, or grouped_bars with normalise = a method");
  }
  if (figure.value("series", "method") != "method") {
    file.FailValue(at + "/series", "\"method\" where published values stand beside ours");
  }
  const std::string metric = figure.value("y", figure.value("metric", "throughput"));
  std::vector<std::string> workloads = ValuesOf(cells, "workload");
  for (std::string& workload : workloads) workload = WorkloadLabel(workload);
  figure["published"] =
      PublishedOfFigure(file, at + "/published", *published,
                        kind.published == "y" ? metric : std::string(), workloads);
}

}  // namespace

const std::vector<FigureKind>& FigureKinds() {
  static const std::vector<FigureKind> kKinds = {
      {"grouped_bars",
       "a metric by x, a bar a method",
       {"x", "y", "metric", "series", "normalise", "published"},
       "y"},
      {"convergence",
       "the metric over training time and over steps",
       {"x", "y", "metric", "series"},
       {}},
      {"breakdown", "where the time of a step goes", {"published"}, ""},
      {"gantt", "one step of each method, lane by lane, from its spans", {"rank"}, {}},
      {"scaling",
       "modelled lines over workers, with measured and emulated points",
       {"x", "y", "metric", "series", "log_y"},
       {}},
      {"prediction", "modelled step times against those measured or emulated", {}, {}},
      {"bytes", "bytes a step and rank, by method", {}, {}},
      {"waiting",
       "copying, waiting for a buffer's close, and exchange, by sparsifier",
       {"published"},
       ""},
      {"dual_line", "final metric and rate of missing tensors over x", {"x", "published"}, ""},
      {"normalised_bars",
       "final metric over a reference's, seed by seed",
       {"y", "metric", "reference", "published"},
       ""},
      {"sensitivity",
       "what factors on a declared cluster's inputs do to ratios and to the order",
       {"y", "metric", "reference"},
       {}},
      {"ablation",
       "variants in sequence, and the gain of each over the one before",
       {"x", "y", "metric", "published"},
       "y"},
      {"agreement",
       "how far predictions are from published numbers of the cluster, both absolute",
       {"y", "metric", "published"},
       "y"}};
  return kKinds;
}

void ReadFigures(const TomlFile& file, const std::string& pointer,
                 const std::optional<Published>& published, Part& part) {
  const json* figures = file.Find(pointer + "/figure");
  if (figures == nullptr) return;
  part.figures = figures->is_array() ? *figures : json::array({*figures});
  for (std::size_t i = 0; i < part.figures.size(); ++i) {
    const std::string at =
        pointer + "/figure" + (figures->is_array() ? "/" + std::to_string(i) : "");
    const FigureKind& kind = KindOf(file, at);
    json& figure = part.figures[i];
    std::vector<std::string> keys = KeysOf("[[figure]]");
    keys.insert(keys.end(), kind.keys.begin(), kind.keys.end());
    for (const auto& key : CellKeyNames()) keys.push_back(key);
    file.CheckKeys(at, fmt::format("[[figure]] of kind \"{}\"", kind.name), keys);
    file.Integer(at, "rank", 0, kFigureRanks);
    file.Boolean(at, "log_y", true);
    file.String(at, "title", "");
    if (file.String(at, "name", "").size() > kLongestId)
      file.FailValue(at + "/name", fmt::format("at most {} characters", kLongestId));
    CheckMethods(file, at, part);
    JoinFigure(part.joined, figure);
    const auto cells = CellsOf(file, at, figure, part);
    CheckNeeds(file, at, figure, part, cells);
    CheckMetric(file, at, figure);
    for (const char* key : {"normalise", "reference"}) CheckMethod(file, at, key, cells);
    if (figure.contains("published")) {
      ReadPublishedOfFigure(file, at, kind, published, cells, figure);
    }
    CheckX(file, at, cells);
    figure["cells"] = json::array();
    for (std::size_t c = 0; c < part.cells.size(); ++c) {
      const bool shown = std::find(cells.begin(), cells.end(), &part.cells[c]) != cells.end();
      if (shown) figure["cells"].push_back(c);
    }
    // TOML has no null: link = "none" is the unshaped one.
    if (figure.contains("where")) {
      for (auto& [key, value] : figure["where"].items()) {
        if (value == "none" && key == "link") value = nullptr;
      }
    }
  }
}

}  // namespace sparfuse::harness
