#include "harness/records/record.hpp"

#include <fmt/ranges.h>

#include <cmath>

#include "harness/files/plain_text.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

Options OptionsFromJson(std::string_view owner, const json& table) {
  Options options;
  for (const auto& [key, value] : table.items()) {
    if (value.is_boolean()) {
      options[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      options[key] = value.get<std::int64_t>();
    } else if (value.is_number_float()) {
      options[key] = value.get<double>();
    } else if (value.is_string()) {
      options[key] = value.get<std::string>();
    } else {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{}: {} = {}: expected true or false, a number or a string", owner,
                                 key, Shown(value)));
    }
  }
  return options;
}

json OptionsToJson(const Options& options) {
  json table = json::object();
  for (const auto& [key, value] : options) {
    std::visit([&, &name = key](const auto& v) { table[name] = v; }, value);
  }
  return table;
}

template <>
std::span<const std::string> NamesOf<Leaves>() {
  static const std::vector<std::string> kNames = {"data",     "option", "words",
                                                  "citation", "hash",   "place"};
  return kNames;
}

std::size_t PlaceOfName(const std::string& name, std::span<const std::string> names) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    SPARFUSE_THROW(kData, fmt::format("\"{}\": expected one of {}", name, fmt::join(names, ", ")));
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::string KeyPlace::Whole() const {
  return outer_ == nullptr ? std::string(name_) : outer_->Whole();
}

std::string KeyPlace::Keys() const {
  if (outer_ == nullptr) return "";
  const std::string outer = outer_->Keys();
  return outer + (outer.empty() ? "" : ".") + Visible(name_);
}

void KeyPlace::Expected(const json& value, std::string_view what) const {
  const std::string keys = Keys();
  SPARFUSE_THROW(kData, fmt::format("{}: {}expected {}", Whole(),
                                    keys.empty() ? "" : keys + " = " + Shown(value) + ": ", what));
}

void KeyPlace::Missing(std::string_view key) const {
  const KeyPlace place(*this, key);
  SPARFUSE_THROW(kData, fmt::format("{}: {} is missing", Whole(), place.Keys()));
}

void KeyPlace::Unknown(std::string_view key, std::span<const std::string> known) const {
  const KeyPlace place(*this, key);
  SPARFUSE_THROW(kData, fmt::format("{}: {}: unknown key, perhaps of a later program{}", Whole(),
                                    place.Keys(), Suggestion(key, known)));
}

json NumberAsWritten(double value) {
  constexpr double kExact = 1e15;
  if (value == std::floor(value) && std::abs(value) < kExact)
    return static_cast<std::int64_t>(value);
  return value;
}

std::string WhatIsWrongWithNumber(const json& value, const KeyInfo& info) {
  if (!info.has_range()) return value.is_number() ? "" : "a number";
  if (!info.above_least) return WhatIsWrongWithNumber(value, info.range);
  const bool good = value.is_number() && value.get<double>() > info.range.least &&
                    value.get<double>() <= info.range.most;
  return good ? "" : fmt::format("a number in ({}, {}]", info.range.least, info.range.most);
}

std::string NumberText(const KeyInfo& info) {
  if (!info.has_range()) return "number";
  return info.above_least ? fmt::format("number in ({}, {}]", info.range.least, info.range.most)
                          : "number, " + Text(info.range);
}

std::vector<std::string> KeyInfo::Choices() const {
  return {choices.begin(), std::ranges::find(choices, nullptr)};
}

json WriteKeys(RecordKeys keys, const void* record, const void* initial, WrittenFor purpose) {
  json made = json::object();
  for (const RecordKey& key : keys) {
    const bool may_lack = key.optional || (key.later && purpose == WrittenFor::kIdentity);
    if (key.IsIn(record) && !(may_lack && key.form->equal(key.member(record), key.member(initial))))
      made[key.name] = key.Write(record, purpose);
  }
  return made;
}

void ReadKeys(RecordKeys keys, const json& from, const KeyPlace& place, void* record) {
  if (!from.is_object()) place.Expected(from, "an object");
  std::size_t known = 0;
  for (const RecordKey& key : keys) {
    if (!key.IsIn(record)) continue;
    const auto found = from.find(key.name);
    if (found != from.end()) {
      key.Read(*found, KeyPlace(place, key.name), record);
      ++known;
    } else if (!key.later && !key.optional) {
      place.Missing(key.name);
    }
  }
  if (known == from.size()) return;
  std::vector<std::string> names;
  for (const RecordKey& key : keys) {
    if (key.IsIn(record)) names.emplace_back(key.name);
  }
  for (const auto& [name, value] : from.items()) {
    if (std::ranges::find(names, name) == names.end()) place.Unknown(name, names);
  }
}

void ScrubKeys(RecordKeys keys, void* record, const Scrubber& scrubber) {
  for (const RecordKey& key : keys)
    key.form->scrub(const_cast<void*>(key.member(record)), key.leaves, scrubber);
}

void ListLeavingKeys(RecordKeys keys, const std::string& before, LeavingKeys& list) {
  for (const RecordKey& key : keys) key.form->list(key, before + key.name, list);
}

void Form<std::string>::Read(const json& from, const KeyInfo& info, const KeyPlace& place,
                             std::string& value) {
  value.clear();
  if ((info.empty_is_null || *info.none) && from == info.NoValue()) return;
  if (!from.is_string()) place.Expected(from, "a string");
  value = from.get<std::string>();
}

std::string TextOfChoices(std::span<const std::string> choices) {
  return choices.empty() ? "string" : fmt::format("\"{}\"", fmt::join(choices, "\", \""));
}

std::string WhatIsWrongWithChoice(const json& given, std::span<const std::string> choices) {
  if (!given.is_string()) return "a string";
  const auto& text = given.get_ref<const std::string&>();
  if (choices.empty() || std::ranges::count(choices, text) > 0) return "";
  const std::string nearest = NearestName(text, choices);
  return fmt::format("one of {}{}", fmt::join(choices, ", "),
                     nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

json Form<Options>::Write(const Options& options, const KeyInfo&, WrittenFor) {
  return OptionsToJson(options);
}

void Form<Options>::Read(const json& from, const KeyInfo& info, const KeyPlace& place,
                         Options& options) {
  try {
    options = OptionsFromJson(info.name, from);
  } catch (const Error& error) {
    place.Expected(from,
                   fmt::format("a table of numbers, strings, true and false ({})", error.what()));
  }
}

void Form<Options>::Scrub(Options& options, Leaves as, const Scrubber& scrubber) {
  for (auto& [name, value] : options) {
    if (auto* text = std::get_if<std::string>(&value)) *text = scrubber.Scrubbed(*text, as);
  }
}

void Form<json>::Scrub(json& value, Leaves as, const Scrubber& scrubber) {
  if (value.is_string()) {
    value = scrubber.Scrubbed(value.get<std::string>(), as);
  } else if (value.is_array()) {
    for (json& each : value) Scrub(each, as, scrubber);
  } else if (value.is_object()) {
    json scrubbed = json::object();
    for (auto& [key, each] : value.items()) {
      Scrub(each, as, scrubber);
      scrubbed[scrubber.Scrubbed(key, Leaves::kData)] = std::move(each);
    }
    value = std::move(scrubbed);
  }
}

}  // namespace sparfuse::harness
