#include "harness/experiment/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/catalog/metrics.hpp"
#include "harness/catalog/tables/table_workload.hpp"
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

}  // namespace sparfuse::harness
