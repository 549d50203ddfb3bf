#include "harness/records/given_record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

std::vector<GivenKey> GivenKeysOf(RecordKeys keys) {
  std::vector<GivenKey> given;
  for (const RecordKey& key : keys) {
    if (key.computed) continue;
    given.push_back({key.name, key.range, *key.type ? key.type : key.TypeText(), key.unit,
                     key.fallback, key.meaning, key.cell.column});
  }
  return given;
}

namespace {

// "" or the expected form of a value from a file.
std::string WhatIsWrongWithGiven(const RecordKey& key, const json& given) {
  const bool may_be_empty = std::string_view(key.fallback) == "\"\"";
  if (given == "" && !may_be_empty) return "a string that is not empty";
  if (key.type == std::string_view("table") && !given.is_object()) return "a table";
  return key.WhatIsWrong(given);
}

}  // namespace

void ReadGivenKeys(RecordKeys keys, const TomlFile& file, const std::string& at,
                   std::string_view what, void* record, std::span<const std::string> more) {
  std::vector<std::string> known(more.begin(), more.end());
  for (const KeyInfo& key : keys) known.emplace_back(key.name);
  file.CheckKeys(at, what, known);
  for (const RecordKey& key : keys) {
    const std::string place = at + "/" + key.name;
    if (const json* value = file.Find(place)) {
      const std::string wrong = WhatIsWrongWithGiven(key, *value);
      if (!wrong.empty()) file.FailValue(place, wrong);
      try {
        key.Read(*value, KeyPlace(key.name), record);
      } catch (const Error& error) {
        file.Fail(place, error.what());
      }
    } else if (const std::string needed = key.WhatIsWrong(json());
               !*key.fallback && !needed.empty()) {
      file.Fail(at, fmt::format("the key \"{}\" is missing: expected {}: {}", key.name, needed,
                                key.meaning));
    }
  }
}

}  // namespace sparfuse::harness
