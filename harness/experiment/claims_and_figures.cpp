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

// The keys that bound the value of `of`, or the value of `of` compared with `over`, by a number.
struct BoundKey {
  const char* name;
  std::optional<double> GivenClaim::*value;
  Comparison comparison;
};
constexpr BoundKey kBoundKeys[] = {{"equals", &GivenClaim::equals, Comparison::kEquals},
                                   {"less_than", &GivenClaim::less_than, Comparison::kLess},
                                   {"at_most", &GivenClaim::at_most, Comparison::kAtMost},
                                   {"at_least", &GivenClaim::at_least, Comparison::kAtLeast},
                                   {"more_than", &GivenClaim::more_than, Comparison::kMore}};

Comparison ExpectedComparison(const std::string& name) {
  return name == "less"      ? Comparison::kLess
         : name == "at_most" ? Comparison::kAtMost
         : name == "more"    ? Comparison::kMore
                             : Comparison::kAtLeast;
}

void CheckCellTable(const TomlFile& file, const std::string& pointer, const json& table) {
  if (!table.is_object() || table.empty())
    file.FailValue(pointer, "{ key = value, ... }: the cell that a [[claim]] is about");
  file.CheckKeys(pointer, "[[claim]]", CellKeyNames());
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

void CheckForEach(const TomlFile& file, const std::string& at, const GivenClaim& given) {
  const bool good = std::ranges::all_of(
      given.for_each, [](const std::string& key) { return FindCellKey(key) != nullptr; });
  if (!good || (given.for_each.empty() && file.Find(at + "/for_each") != nullptr))
    file.FailValue(at + "/for_each", "a list of keys of cells: [\"workload\", \"workers\"]");
}

// Reads stated, figure and judge: the paper's number.
void ReadStated(const TomlFile& file, const std::string& at, const GivenClaim& given,
                Claim& claim) {
  if (claim.compared == Compared::kValue) {
    file.Fail(at + "/stated", "stated: expected over = { ... } with it");
  }
  for (const char* key : {"stated", "figure"}) {
    const auto& number = key == std::string_view("stated") ? given.stated : given.figure;
    if (!number) continue;
    if (claim.compared == Compared::kDifference && *number == 0) {
      file.FailValue(at + "/" + key, "a difference that is not 0; expect = ... compares with 0");
    }
    if (claim.compared == Compared::kRatio) file.Number(at, key, 0, kStatedRatios);
  }
  claim.stated = given.stated;
  claim.figure = given.figure;
  claim.judge_figure = given.judge == "figure";
  if (claim.judge_figure && !claim.figure) file.FailValue(at + "/judge", "figure = ... beside it");
}

// Checks that exactly one of the keys of an expectation is given.
void ReadExpectation(const TomlFile& file, const std::string& at, const GivenClaim& given,
                     Claim& claim) {
  std::vector<std::string> known, there;
  const auto add = [&](const char* key, bool is_there) {
    known.emplace_back(key);
    if (is_there) there.emplace_back(key);
  };
  add("stated", given.stated.has_value());
  add("expect", !given.expect.empty());
  for (const BoundKey& key : kBoundKeys) add(key.name, (given.*key.value).has_value());
  if (there.size() != 1) {
    file.Fail(at, fmt::format("[[claim]]: {}: expected exactly one of {}",
                              there.empty() ? "nothing is expected"
                                            : fmt::format("{} together", fmt::join(there, ", ")),
                              fmt::join(known, ", ")));
  }
  if (given.stated) return ReadStated(file, at, given, claim);
  for (const char* key : {"figure", "judge"}) {
    if (file.Find(at + "/" + key) != nullptr)
      file.FailValue(at + "/" + key, "stated = ... beside it");
  }
  for (const BoundKey& key : kBoundKeys) {
    if (given.*key.value) claim.bound = {key.comparison, *(given.*key.value)};
  }
  if (given.expect.empty()) return;
  if (claim.compared == Compared::kValue)
    file.Fail(at + "/expect", "expect: expected over = { ... } with it");
  claim.bound = {ExpectedComparison(given.expect), claim.compared == Compared::kRatio ? 1.0 : 0.0};
}

// "safusion, digits-resnet, workers 2"
std::string SettingText(const std::vector<std::string>& keys, const json& setting) {
  std::string text;
  for (const auto& key : keys) {
    const json& value = setting[key];
    text += text.empty() ? "" : ", ";
    if (key == "workload") {
      text += WorkloadLabel(value.get<std::string>());
    } else if (key == "link") {
      const std::optional<LinkShape> link = StoredLink(value);
      text += link ? LinkWordsInFull(*link) : LinkWords(link);
    } else if (value.is_null()) {
      text += key + " not given";
    } else {
      text += value.is_string() ? value.get<std::string>() : key + " " + value.dump();
    }
  }
  return text;
}

void ReadClaim(const TomlFile& file, const std::string& at, const GivenClaim& given, Part& part) {
  Claim claim;
  claim.quote = claim.sentence = given.quote;
  claim.metric = given.metric;
  claim.source = given.source;
  const auto metrics = MetricNames();
  if (std::ranges::find(metrics, claim.metric) == metrics.end()) {
    file.Fail(at + "/metric", fmt::format("unknown metric \"{}\"{}", claim.metric,
                                          Suggestion(claim.metric, metrics)));
  }
  const bool pair = !given.over.is_null();
  CheckCellTable(file, at + "/of", given.of);
  if (pair) CheckCellTable(file, at + "/over", given.over);
  if (given.difference && !pair) file.FailValue(at + "/difference", "over = { ... } beside it");
  claim.compared = given.difference ? Compared::kDifference
                   : pair           ? Compared::kRatio
                                    : Compared::kValue;
  ReadExpectation(file, at, given, claim);
  CheckForEach(file, at, given);
  const json& of = given.of;
  const std::vector<std::string>& keys = given.for_each;
  std::vector<json> settings;  // the cells' combinations of these keys, each once
  for (const std::size_t cell : CellsThatMatch(of, part)) {
    json setting = json::object();
    for (const auto& key : keys) setting[key] = part.cells[cell].json.at(key);
    if (std::ranges::find(settings, setting) == settings.end()) {
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
      one.over.update(given.over);
      one.over_cell = OnlyCell(file, at + "/over", one.over, part);
      if (one.over_cell == one.of_cell) {
        file.Fail(at + "/over", fmt::format("[[claim]] over = {}: is the same cell as `of`: "
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
  const auto claims = ReadTables<GivenClaim>(file, pointer + "/claim", "[[claim]]");
  for (std::size_t i = 0; i < claims.size(); ++i)
    ReadClaim(file, fmt::format("{}/claim/{}", pointer, i), claims[i], part);
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

// Keys of cells in [[figure]] and in its `where` choose among the cells.
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
    const bool all = std::ranges::all_of(wanted.items(), [&](const auto& item) {
      if (item.key() != "link_gbps") return Matches(item.value(), cell.json.at(item.key()));
      const auto& link = cell.config.link;
      return Matches(item.value(), link ? json(link->gbps) : json());
    });
    if (all) found.push_back(&cell);
  }
  // A part's twins are modelled and come later. A filter may match only them.
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

void CheckMetric(const TomlFile& file, const std::string& at, const GivenFigure& given) {
  const auto metrics = MetricNames();
  for (const auto& [key, name] : {std::pair("y", &given.y), std::pair("metric", &given.metric)}) {
    if (name->empty() || std::ranges::find(metrics, *name) != metrics.end()) continue;
    file.Fail(at + "/" + key, fmt::format("unknown metric \"{0}\" of a figure{1}", *name,
                                          Suggestion(*name, metrics)));
  }
}

void CheckMethod(const TomlFile& file, const std::string& at, const char* key,
                 const std::string& name, const std::vector<const Cell*>& cells) {
  if (name.empty()) return;
  const auto known = ValuesOf(cells, "method");
  if (std::ranges::find(known, name) == known.end()) {
    file.Fail(at + "/" + key, fmt::format("{} = \"{}\": no cell of the figure has this method{}",
                                          key, name, Suggestion(name, known)));
  }
}

void CheckTargets(const TomlFile& file, const std::string& at, const GivenFigure& given,
                  const Part& part) {
  const bool convergence = std::ranges::any_of(
      part.cells, [](const Cell& cell) { return cell.config.kind == TrialKind::kConvergence; });
  if (!convergence) file.Fail(at, "time_to_target: expected cells of kind \"convergence\"");
  const bool numbers = given.targets.is_array() && !given.targets.empty() &&
                       std::ranges::all_of(given.targets, &json::is_number);
  if (!given.targets.is_null() && !numbers)
    file.FailValue(at + "/targets", "a list of numbers, at least one");
  const bool none = std::ranges::none_of(
      part.cells, [](const Cell& cell) { return cell.config.target.has_value(); });
  if (given.targets.is_null() && none)
    file.Fail(at, "time_to_target: expected targets = [...], as no cell has a target");
}

// Checks the keys that a kind of figure needs. The file may state them for the whole part.
void CheckNeeds(const TomlFile& file, const std::string& at, const GivenFigure& given,
                const Part& part, const std::vector<const Cell*>& cells) {
  const std::string& kind = given.kind;
  if ((kind == "sensitivity" || kind == "normalised_bars") && part.reference.empty() &&
      given.reference.empty()) {
    file.Fail(at, kind + ": expected reference = a method that others are divided by");
  }
  if (kind == "slopes" && part.reference.empty() && given.normalise.empty())
    file.Fail(at, "slopes: expected normalise = a method that others are divided by");
  if (kind == "slopes" && given.x.empty() && ValuesOf(cells, "cluster").empty())
    file.Fail(at, "slopes: expected x = a key of cells, as no cell has a cluster");
  if (kind == "dual_line" && given.x.empty()) {
    file.Fail(at,
              "dual_line: expected x = a key of cells, such as "
              "\"method_options.planner_options.degree\"");
  }
  if (kind == "agreement" && given.published.is_null())
    file.Fail(at, "agreement: expected published = { artifacts = ..., networks = ... }");
  if (kind == "time_to_target") CheckTargets(file, at, given, part);
  if (kind == "ablation" && ValuesOf(cells, "method").size() < 2) {
    file.Fail(at, "ablation: expected cells of two methods or more");
  }
}

// Checks each of `methods`. A method without cells would go unnoticed among the others.
void CheckMethods(const TomlFile& file, const std::string& at, const Part& part) {
  const json* methods = file.Find(at + "/methods");
  if (methods == nullptr) return;
  const std::set<std::string> known = MethodsOf(part);
  const std::vector<std::string> names(known.begin(), known.end());
  for (const json& name : methods->is_array() ? *methods : json::array({*methods})) {
    if (!name.is_string()) file.FailValue(at + "/methods", "a list of methods");
    if (!known.contains(name.get<std::string>())) {
      file.Fail(at + "/methods", fmt::format("methods: no cell of the part has {}{}", Shown(name),
                                             Suggestion(name.get<std::string>(), names)));
    }
  }
}

// x is "workers" or the like, a key of cells, or a path into a table, as in
// "method_options.planner_options.degree". At least one cell must have it.
void CheckX(const TomlFile& file, const std::string& at, const std::string& x,
            const std::vector<const Cell*>& cells) {
  if (x.empty() || x == "link_gbps") return;
  const std::string first = x.substr(0, x.find('.'));
  const auto known = CellKeyNames();
  if (FindCellKey(first) == nullptr) {
    file.Fail(at + "/x",
              fmt::format("x = \"{}\": expected a key of cells{}", x, Suggestion(first, known)));
  }
  std::string path = "/" + x;
  std::ranges::replace(path, '.', '/');
  const json::json_pointer where(path);
  if (std::ranges::none_of(cells, [&](const Cell* cell) { return cell->json.contains(where); })) {
    file.Fail(at + "/x", fmt::format("x = \"{}\": no cell of the figure has it", x));
  }
}

void ReadPublishedOfFigure(const TomlFile& file, const std::string& at, const FigureKind& kind,
                           const std::optional<Published>& published,
                           const std::vector<const Cell*>& cells, GivenFigure& given,
                           json& figure) {
  if (!published) {
    file.Fail(at + "/published",
              "published: expected a table [published] with paper = \"...\" in this file");
  }
  if (const std::string x = file.String(at + "/published", "x", ""); !x.empty()) {
    if (!given.x.empty() && given.x != x)
      file.FailValue(at + "/published/x", fmt::format("the figure's x, \"{}\"", given.x));
    figure["x"] = given.x = x;
  }
  const bool gains = given.kind == "ablation" || !given.normalise.empty();
  if (file.Find(at + "/published/stated") != nullptr && !gains) {
    file.FailValue(at + "/published/stated",
                   "a figure of ratios: an ablation, or grouped_bars with normalise = a method");
  }
  if (!given.series.empty() && given.series != "method") {
    file.FailValue(at + "/series", "\"method\" if published values are drawn with ours");
  }
  const std::string metric = !given.y.empty()        ? given.y
                             : !given.metric.empty() ? given.metric
                                                     : "throughput";
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
      {"time_to_target",
       "epochs and seconds that training needs to reach targets, and the factors of their ratios",
       {"targets", "reference", "modelled"},
       {}},
      {"breakdown", "the parts of a step's time", {"published"}, ""},
      {"gantt", "one step of each method, lane by lane, from its spans", {"rank"}, {}},
      {"scaling",
       "modelled lines over workers, with measured and emulated points",
       {"x", "y", "metric", "series", "log_y"},
       {}},
      {"slopes",
       "ratios to a method by x, one line for each method; if lines cross, the order does not "
       "carry over",
       {"x", "y", "metric", "normalise"},
       {}},
      {"prediction", "modelled step times over measured or emulated ones", {}, {}},
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
       "effects of factors on a declared cluster's inputs on ratios and on the order",
       {"y", "metric", "reference"},
       {}},
      {"ablation",
       "variants in sequence, and the gain of each over the one before",
       {"x", "y", "metric", "published"},
       "y"},
      {"agreement",
       "distance of predictions from published numbers of the cluster, both absolute",
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
    const std::vector<std::string> of_cells = CellKeyNames();
    keys.insert(keys.end(), of_cells.begin(), of_cells.end());
    const std::string what = fmt::format("[[figure]] of kind \"{}\"", kind.name);
    file.CheckKeys(at, what, keys);
    GivenFigure given;
    ReadTable(file, at, what, given, of_cells);
    if (given.name.size() > kLongestId)
      file.FailValue(at + "/name", fmt::format("at most {} characters", kLongestId));
    CheckMethods(file, at, part);
    JoinFigure(part.joined, figure);
    const auto cells = CellsOf(file, at, figure, part);
    CheckNeeds(file, at, given, part, cells);
    CheckMetric(file, at, given);
    CheckMethod(file, at, "normalise", given.normalise, cells);
    CheckMethod(file, at, "reference", given.reference, cells);
    if (!given.published.is_null())
      ReadPublishedOfFigure(file, at, kind, published, cells, given, figure);
    CheckX(file, at, given.x, cells);
    figure["cells"] = json::array();
    for (std::size_t c = 0; c < part.cells.size(); ++c) {
      const bool shown = std::ranges::find(cells, &part.cells[c]) != cells.end();
      if (shown) figure["cells"].push_back(c);
    }
    // TOML has no null: link = "none" means an unshaped link.
    if (figure.contains("where")) {
      for (auto& [key, value] : figure["where"].items()) {
        if (value == "none" && key == "link") value = nullptr;
      }
    }
  }
}

}  // namespace sparfuse::harness
