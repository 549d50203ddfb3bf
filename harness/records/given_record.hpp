// Reads records from files that people write: each value is checked as its key says, and errors
// name its line.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/toml_file.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

// A key that a file may give. fallback: the default in words or as TOML, "" if the file must give
// the key; meaning: one sentence; more: other members of the key.
template <auto kMember, class Of = typename MemberOf<decltype(kMember)>::Record>
RecordKey<Of> Given(const char* name, const char* fallback, const char* meaning,
                    KeyInfo more = {}) {
  more.name = name;
  more.fallback = fallback;
  more.meaning = meaning;
  return Key<kMember, Of>(std::move(more));
}

// The keys of a record that files may give, in the order of its table.
template <class Record>
std::vector<GivenKey> GivenKeysOf() {
  std::vector<GivenKey> keys;
  for (const RecordKey<Record>& key : KeysOf<Record>()) {
    if (key.computed) continue;
    keys.push_back({key.name, key.range, *key.type ? key.type : key.type_text(key), key.unit,
                    key.fallback, key.meaning, key.cell.column});
  }
  return keys;
}

// "" or the expected form of a value from a file.
template <class Record>
std::string WhatIsWrong(const RecordKey<Record>& key, const nlohmann::json& given) {
  const bool may_be_empty = std::string_view(key.fallback) == "\"\"";
  if (given == "" && !may_be_empty) return "a string that is not empty";
  if (key.type == std::string_view("table") && !given.is_object()) return "a table";
  return key.what_is_wrong(key, given);
}

// Fills `record` from the table at `at`, called `what` in errors. Keys that are not there keep
// their values. A key without a default must be there; if it is JSON, its reader checks that. more:
// further keys of the table, which the caller reads. Throws Error{kConfig}: "FILE:LINE: key =
// value: expected ...".
template <class Record>
void ReadTable(const TomlFile& file, const std::string& at, std::string_view what, Record& record,
               std::span<const std::string> more = {}) {
  std::vector<std::string> known(more.begin(), more.end());
  for (const KeyInfo& key : KeysOf<Record>()) known.emplace_back(key.name);
  file.CheckKeys(at, what, known);
  for (const RecordKey<Record>& key : KeysOf<Record>()) {
    const std::string place = at + "/" + key.name;
    if (const nlohmann::json* value = file.Find(place)) {
      const std::string wrong = WhatIsWrong(key, *value);
      if (!wrong.empty()) file.FailValue(place, wrong);
      try {
        key.read(*value, key, KeyPlace(key.name), record);
      } catch (const Error& error) {
        file.Fail(place, error.what());
      }
    } else if (const std::string needed = key.what_is_wrong(key, nlohmann::json());
               !*key.fallback && !needed.empty()) {
      file.Fail(at, fmt::format("the key \"{}\" is missing: expected {}: {}", key.name, needed,
                                key.meaning));
    }
  }
}

// A record for each of the tables at `at`, called `what` in errors; empty if there is none.
template <class Record>
std::vector<Record> ReadTables(const TomlFile& file, const std::string& at, std::string_view what) {
  const nlohmann::json* list = file.Find(at);
  if (list == nullptr) return {};
  if (!list->is_array()) file.FailValue(at, fmt::format("{} tables", what));
  std::vector<Record> records(list->size());
  for (std::size_t i = 0; i < records.size(); ++i)
    ReadTable(file, fmt::format("{}/{}", at, i), what, records[i]);
  return records;
}

}  // namespace sparfuse::harness
