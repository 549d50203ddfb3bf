#include "harness/experiment/cells.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "harness/catalog/method_file.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

void CheckKeyAndValue(const CellSource& source, const std::string& what, const std::string& key,
                      const std::string& pointer) {
  const GivenKey* known = FindCellKey(key);
  if (known == nullptr) {
    source.file.Fail(pointer, fmt::format("{}: unknown key \"{}\"{}", what, key,
                                          Suggestion(key, CellKeyNames())));
  }
}

void CheckValue(const CellSource& source, const std::string& key, const std::string& pointer) {
  const std::string wrong = WhatIsWrong(key, *source.file.Find(pointer));
  if (!wrong.empty()) {
    source.file.Fail(pointer, fmt::format("{} = {}: expected {}", key,
                                          Shown(*source.file.Find(pointer)), wrong));
  }
}

// Must be called before any cell of the product is made.
void RequireFewCells(const CellSource& source, const std::string& at, std::size_t cells) {
  if (cells <= kMostCells) return;
  source.file.Fail(at, fmt::format("the axes up to here make {} cells: expected at most {}; drop "
                                   "values, let lists move together in one [[axis]], or divide "
                                   "the file",
                                   cells, kMostCells));
}

// The rows of one [[axis]] table: row i holds element i of each of its lists.
std::vector<GivenKeys> AxisRows(const CellSource& source, const std::string& pointer) {
  const json& table = *source.file.Find(pointer);
  if (!table.is_object() || table.empty()) {
    source.file.Fail(pointer, "[[axis]]: expected a table of lists with at least one key");
  }
  std::vector<GivenKeys> rows;
  std::string first;
  for (const auto& [key, list] : table.items()) {
    const std::string at = pointer + "/" + key;
    CheckKeyAndValue(source, "[[axis]]", key, at);
    if (!list.is_array() || list.empty()) {
      source.file.FailValue(at, "a list of at least one value");
    }
    RequireFewCells(source, at, list.size());
    if (first.empty()) {
      first = key;
      rows.resize(list.size());
    }
    if (list.size() != rows.size()) {
      source.file.Fail(at,
                       fmt::format("{} has {} values and {} has {}: expected lists of equal length "
                                   "in one [[axis]]",
                                   key, list.size(), first, rows.size()));
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string element = at + "/" + std::to_string(i);
      CheckValue(source, key, element);
      rows[i][key] = {list[i], element};
    }
  }
  return rows;
}

struct Exclusion : GivenExclusion {
  std::string pointer;
  std::size_t matched = 0;
};

std::vector<Exclusion> ReadExclusions(const CellSource& source, const std::string& pointer,
                                      const GivenKeys& known) {
  std::vector<Exclusion> exclusions;
  for (GivenExclusion& given :
       ReadTables<GivenExclusion>(source.file, pointer + "/exclude", "[[exclude]]")) {
    const std::string at = fmt::format("{}/exclude/{}", pointer, exclusions.size());
    if (!given.when.is_object() || given.when.empty()) {
      source.file.Fail(at, "[[exclude]]: expected when = { key = value, ... }");
    }
    for (const auto& [key, value] : given.when.items()) {
      CheckKeyAndValue(source, "[[exclude]] when", key, at + "/when/" + key);
      if (!known.contains(key)) {
        source.file.Fail(
            at + "/when/" + key,
            fmt::format("[[exclude]] when {} = {}: no [defaults] and no [[axis]] sets {}", key,
                        Shown(value), key));
      }
    }
    exclusions.push_back({std::move(given), at});
  }
  return exclusions;
}

Exclusion* FindExclusion(std::vector<Exclusion>& exclusions, const GivenKeys& given) {
  Exclusion* found = nullptr;
  for (auto& exclusion : exclusions) {
    const bool all = std::ranges::all_of(exclusion.when.items(), [&](const auto& item) {
      const auto value = given.find(item.key());
      return value != given.end() && Matches(item.value(), value->second.value);
    });
    if (!all) continue;
    ++exclusion.matched;
    if (found == nullptr) found = &exclusion;
  }
  return found;
}

json PlainValues(const GivenKeys& given) {
  json plain = json::object();
  for (const auto& [key, value] : given) plain[key] = value.value;
  return plain;
}

// A dense method has one cell, whatever densities or sparsifiers the axes list.
bool DiffersOnlyInSparsity(json a, json b) {
  for (const std::string& key : SparsityKeys()) {
    a.erase(key);
    b.erase(key);
  }
  return a == b;
}

std::string_view AxisOf(const GivenValue& value) {  // "/axis/1" of "/axis/1/method/0"
  std::string_view at = value.pointer;
  for (int levels = 0; levels < 2; ++levels) at = at.substr(0, at.rfind('/'));
  return at;
}

// The keys of a cell's method that the axis of methods lists: options, and parts by name.
json SaidOfMethod(const GivenKeys& given) {
  json said = json::object();
  const std::string_view axis = AxisOf(given.at("method"));
  for (const std::string& key : MethodKeys()) {
    const auto value = given.find(key);
    if (key == "method" || key == "density" || value == given.end()) continue;
    if (AxisOf(value->second) == axis) said[key] = value->second.value;
  }
  return said;
}

std::string WordsOfKey(const std::string& key, const json& value) {
  constexpr std::size_t kManyWords = 8;
  if (value.is_array() && value.size() > kManyWords) {
    return fmt::format("{} {}", value.size(), key);  // "43 units"
  }
  const std::string words = value.is_string() ? value.get<std::string>() : value.dump();
  if (key == "collective" || key == "sparsifier" || key == "feedback") return words;
  std::string name = key;
  std::ranges::replace(name, '_', ' ');
  return name + " " + words;
}

// Adds the words of each value in `said` that some of `others` lack. Values of tables are compared
// one by one. A collective is always named, because it makes another method.
void AddWords(const json& said, const std::vector<const json*>& others,
              std::vector<std::string>& words) {
  static const json kNothing;
  for (const auto& [key, value] : said.items()) {
    std::vector<const json*> theirs;
    bool alike = true;
    for (const json* other : others) {
      const bool has = other->is_object() && other->contains(key);
      theirs.push_back(has ? &other->at(key) : &kNothing);
      alike = alike && *theirs.back() == value;
    }
    if (alike && key != "collective") continue;
    if (value.is_object()) {
      AddWords(value, theirs, words);
    } else if (!value.is_null()) {
      words.push_back(WordsOfKey(key, value));
    }
  }
}

// said: the method's keys of each cell. Dense methods, and methods that an axis lists once, keep
// their plain names.
void NameCells(const std::vector<json>& said, std::vector<Cell>& cells) {
  std::map<std::string, std::vector<const json*>> of_method;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    of_method[cells[i].config.method].push_back(&said[i]);
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::string> words;
    AddWords(said[i], of_method[cells[i].config.method], words);
    cells[i].label = cells[i].config.method;
    if (!words.empty()) cells[i].label += fmt::format(" ({})", fmt::join(words, ", "));
  }
}

// A model table is known by its name, so two tables must not share one.
void RequireNamesOfTablesOnce(const CellSource& source, const std::string& pointer,
                              const std::vector<Cell>& cells) {
  std::map<std::string, std::string> tables;  // name -> the workload of cells
  for (const Cell& cell : cells) {
    const std::string& workload = cell.config.workload;
    if (!workloads::IsTable(workload)) continue;
    const auto [other, is_new] = tables.emplace(WorkloadLabel(workload), workload);
    if (is_new || other->second == workload) continue;
    source.file.Fail(pointer, fmt::format("workload: {} and {} have one name; expected another one "
                                          "for one of the two files",
                                          other->second, workload));
  }
}

// Whether `table`, or a table in it, has the key with a matching value. Options are written flat,
// and their owners resolve them.
bool HasOption(const json& table, const std::string& key, const json& wanted) {
  if (const auto value = table.find(key); value != table.end()) return Matches(wanted, *value);
  return std::ranges::any_of(
      table, [&](const json& inner) { return inner.is_object() && HasOption(inner, key, wanted); });
}

// The rows without the keys of methods, each combination once.
std::vector<GivenKeys> SettingsOf(const std::vector<GivenKeys>& rows) {
  std::vector<GivenKeys> settings;
  const auto same = [](const GivenKeys& a, const GivenKeys& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.value == y.second.value;
    });
  };
  for (GivenKeys row : rows) {
    for (const std::string& key : MethodKeys()) row.erase(key);
    if (std::ranges::none_of(settings, [&](const GivenKeys& known) { return same(known, row); }))
      settings.push_back(std::move(row));
  }
  return settings;
}

// The list's value for a method key that is left to its default.
json Unsaid(const json& list) { return list.front().is_object() ? json::object() : json(); }

void JoinList(std::span<const std::string> joined, json& list) {
  if (!list.is_array()) return;
  for (const std::string& method : joined) {
    if (std::ranges::find(list, json(method)) == list.end()) list.push_back(method);
  }
}

// If the axis at `pointer` lists methods, adds a row for each of `joined` that it lacks, also to
// `axis`, the table that figures read. Keys of the row that belong to a method (its options, its
// sparsifier, feedback) take the new method's defaults. For all other keys, the new method takes
// each combination of the axis.
void JoinMethods(std::span<const std::string> joined, const std::string& pointer,
                 std::vector<GivenKeys>& rows, json& axis) {
  if (!rows.front().contains("method")) return;
  const std::vector<GivenKeys> settings = SettingsOf(rows);
  for (const std::string& method : joined) {
    if (std::ranges::any_of(rows,
                            [&](const GivenKeys& row) { return row.at("method").value == method; }))
      continue;
    for (GivenKeys row : settings) {
      row["method"] = {method, pointer + "/method", true};
      for (auto& [key, list] : axis.items())
        list.push_back(row.contains(key) ? row.at(key).value : Unsaid(list));
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace

bool Matches(const json& wanted, const json& given) {
  if (wanted.is_object() && !wanted.empty() && given.is_object()) {
    return std::ranges::all_of(wanted.items(), [&](const auto& item) {
      return HasOption(given, item.key(), item.value());
    });
  }
  if (wanted.is_array()) {
    return std::ranges::any_of(wanted, [&](const json& one) { return Matches(one, given); });
  }
  if (wanted == "none" && given.is_null()) return true;  // link = "none"
  if (wanted.is_string() && given.is_string()) {
    const auto& name = wanted.get_ref<const std::string&>();
    const auto& resolved = given.get_ref<const std::string&>();
    if (MeansOutsidePart(name, resolved) || MeansMethodFile(name, resolved) ||
        MeansTable(name, resolved)) {
      return true;
    }
  }
  return wanted == given;
}

GivenKeys ReadDefaults(const CellSource& source, const std::string& pointer, GivenKeys inherited) {
  const json* table = source.file.Find(pointer);
  if (table == nullptr) return inherited;
  if (!table->is_object()) source.file.FailValue(pointer, "a table");
  for (const auto& [key, value] : table->items()) {
    const std::string at = pointer + "/" + key;
    CheckKeyAndValue(source, "[defaults]", key, at);
    CheckValue(source, key, at);
    inherited[key] = {value, at};
  }
  return inherited;
}

void ExpandCells(const CellSource& source, const std::string& pointer, const GivenKeys& defaults,
                 Part& part) {
  const std::string at = pointer + "/axis";
  std::vector<GivenKeys> products = {defaults};
  std::set<std::string> on_axes;
  GivenKeys known = defaults;
  if (const json* axes = source.file.Find(at)) {
    if (!axes->is_array()) source.file.FailValue(at, "[[axis]] tables");
    part.axes = *axes;
    for (std::size_t i = 0; i < axes->size(); ++i) {
      auto rows = AxisRows(source, at + "/" + std::to_string(i));
      JoinMethods(source.joined, at + "/" + std::to_string(i), rows, part.axes[i]);
      for (const auto& [key, value] : rows.front()) {
        if (!on_axes.insert(key).second) {
          source.file.Fail(
              at + "/" + std::to_string(i) + "/" + key,
              fmt::format("{} is on two axes: expected a key on one [[axis]] only", key));
        }
        known[key] = value;
      }
      RequireFewCells(source, at + "/" + std::to_string(i), products.size() * rows.size());
      std::vector<GivenKeys> wider;
      for (const auto& product : products) {
        for (const auto& row : rows) {
          GivenKeys combined = product;
          for (const auto& [key, value] : row) combined[key] = value;
          wider.push_back(std::move(combined));
        }
      }
      products = std::move(wider);
    }
  }
  auto exclusions = ReadExclusions(source, pointer, known);
  std::vector<json> said;            // the method's keys of each cell
  std::map<std::string, json> seen;  // config hash -> the keys that gave it
  for (const auto& given : products) {
    if (const Exclusion* exclusion = FindExclusion(exclusions, given)) {
      part.excluded.push_back({PlainValues(given), exclusion->reason});
      continue;
    }
    const bool joined = given.contains("method") && given.at("method").joined;
    Cell cell;
    try {
      cell = Cell(ResolveCell(source, pointer, given));
    } catch (const Error& error) {
      if (!joined) throw;
      part.excluded.push_back({PlainValues(given), error.what()});
      continue;
    }
    cell.joined = joined;
    json plain = PlainValues(given);
    const auto [earlier, is_new] = seen.emplace(cell.config_hash, plain);
    if (is_new) {
      const std::string method = cell.config.method;
      if (joined && std::ranges::find(part.joined, method) == part.joined.end())
        part.joined.push_back(method);
      part.cells.push_back(std::move(cell));
      said.push_back(SaidOfMethod(given));
    } else if (cell.config.sparsifier != "none" || earlier->second == plain ||
               !DiffersOnlyInSparsity(earlier->second, plain)) {
      source.file.Fail(source.file.Find(at) ? at + "/0" : pointer,
                       fmt::format("two cells are the same ({}): expected every cell once",
                                   CellName(cell.config)));
    }
  }
  RequireNamesOfTablesOnce(source, source.file.Find(at) ? at + "/0" : pointer, part.cells);
  NameCells(said, part.cells);
  for (const auto& exclusion : exclusions) {
    if (exclusion.matched == 0) {
      source.file.Fail(exclusion.pointer, fmt::format("[[exclude]] when = {}: matches no cell",
                                                      exclusion.when.dump()));
    }
  }
  if (part.cells.empty()) source.file.Fail(pointer, "no cell is left: expected at least one");
}

void JoinFigure(std::span<const std::string> joined, json& figure) {
  for (const char* key : {"methods", "method"}) {
    if (figure.contains(key)) JoinList(joined, figure[key]);
  }
  if (figure.contains("where") && figure["where"].contains("method"))
    JoinList(joined, figure["where"]["method"]);
}

}  // namespace sparfuse::harness
