// Describes records: structs that the program writes as JSON and reads again. A record has one
// table of its keys. Reading, writing, checking, lists of keys, and the rules for leaving this
// machine use that table.
//
// A key is one entry of the table:
//
//   Key<&CellConfig::accumulation>({.name = "accumulation", .range = {1, 1e6},
//                                   .unit = "micro-steps", .fallback = "1",
//                                   .meaning = "backward passes whose gradients are added up"})
//
// The type of a key is its member's, its default the member's initialiser. A record's source file
// defines the table, KeysOf<Record>(), and functions for the rest of the program: ToJson, RecordOf.
// Tables are constants, and what reads and writes them is no template: a key costs the compiler a
// function that finds its member.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/files/range.hpp"
#include "harness/records/names.hpp"

namespace sparfuse::harness {

// A table of scalars as options. `owner` begins the Error{kConfig} for any other value.
Options OptionsFromJson(std::string_view owner, const nlohmann::json& table);
nlohmann::json OptionsToJson(const Options& options);

// The treatment of a text that leaves this machine in a bundle, a site or a report. Numbers, true,
// false and null leave unchanged.
enum class Leaves : std::uint8_t {
  kData,      // short words: no names of hosts and users, no folders, no tokens
  kOption,    // the same, but a single word of letters stays whatever it is: a user may be called
              // as an optimizer is, and configurations must be the same everywhere
  kWords,     // a sentence: like data, without the folders of relative paths
  kCitation,  // words in which addresses of the web stay, without what may name a person in them
  kHash,      // hexadecimal digits
  kPlace      // a trial's id, or a name with slashes: no absolute path, no ".."
};

// The role of a key in a cell, for code that chooses keys by their role.
struct CellRole {
  enum class Part : std::uint8_t {
    kSetting,  // equal in the cells of one comparison
    kMethod,   // of the method
    kSparsity  // of the method, and a dense one lacks it
  };
  Part part = Part::kSetting;
  // Places a cell or sets its duration: a modelled cell and a live one may differ in it and still
  // be points of one curve.
  bool launch = false;
  // A property of the processes of ranks: trials that differ in it need launches of their own.
  bool process = false;
  int telling = std::numeric_limits<int>::max();  // figures distinguish cells by the least first
  const char* column = "";                        // heads its column in tables that have one
  bool named = false;                             // errors name a cell by it

  bool is_told() const { return telling != std::numeric_limits<int>::max(); }
};

struct KeyInfo {
  const char* name = "";
  Range range = {};                         // of numbers, also in lists; {0, 0}: any
  bool above_least = false;                 // the least is no value: (0, 1]
  std::array<const char*, 4> choices = {};  // of strings; none: any
  const char* type = "";                    // in words, if the member's type does not tell
  const char* unit = "";
  const char* fallback = "";  // the default in words or as TOML; "": a file must give the key
  const char* meaning = "";   // one sentence
  Leaves leaves = Leaves::kData;
  // Added to the record after its schema was fixed: stored records may lack it. If it has the
  // member's initial value, identities are the same as without it.
  bool later = false;
  // Stored records may lack it, and do so if it has the member's initial value.
  bool optional = false;
  bool empty_is_null = false;  // of strings: "" is written as null
  // Written for "" and for an absent optional value; "": null is written.
  const char* none = "";
  // Of a cell: the file's value is the cell's, and the member's initial value is the default. The
  // resolver interprets other keys (harness/experiment/resolver.hpp).
  bool as_given = false;
  bool or_name = false;   // of a table: a file may give the name of one
  bool computed = false;  // of a cell: no file gives it
  CellRole cell = {};

  std::vector<std::string> Choices() const;
  bool has_range() const { return range.least != 0 || range.most != 0; }
  nlohmann::json NoValue() const { return *none ? nlohmann::json(none) : nlohmann::json(); }
};

// The place of a value, for errors: a file or another name of the whole, and the keys down to it.
class KeyPlace {
 public:
  explicit KeyPlace(std::string_view whole) : name_(whole) {}
  KeyPlace(const KeyPlace& outer, std::string_view key) : outer_(&outer), name_(key) {}

  // Throw Error{kData}: "FILE: config.workers = -1: expected an integer from 1 to 65536".
  [[noreturn]] void Expected(const nlohmann::json& value, std::string_view what) const;
  [[noreturn]] void Missing(std::string_view key) const;
  [[noreturn]] void Unknown(std::string_view key, std::span<const std::string> known) const;

 private:
  std::string Whole() const;
  std::string Keys() const;

  const KeyPlace* outer_ = nullptr;
  std::string_view name_;
};

// Removes names of hosts, users, folders and secrets from texts; see harness/bundle.
class Scrubber {
 public:
  virtual ~Scrubber() = default;
  virtual std::string Scrubbed(const std::string& text, Leaves as) const = 0;
};

enum class WrittenFor : std::uint8_t {
  kFile,
  kIdentity  // without later keys that have their initial value
};

// The JSON form of a type. Each specialisation has
//
//   static json Write(const Value&, const KeyInfo&, WrittenFor);
//   static void Read(const json&, const KeyInfo&, const KeyPlace&, Value&);  // Error{kData}
//   static void Scrub(Value&, Leaves, const Scrubber&);
//   static std::string TypeText(const KeyInfo&);                 // "integer, 1 to 64"
//   static std::string WhatIsWrong(const KeyInfo&, const json&);
//
// WhatIsWrong returns "" or the expected form of a value that a user gave.
template <class Value>
struct Form;

// The keys of a record that leave ("config.workers"), and how: "number", or the name of a Leaves.
using LeavingKeys = std::map<std::string, std::string>;

template <class Value>
void ListLeaving(const KeyInfo& info, const std::string& key, LeavingKeys& list);

// The form of a type, for functions that do not know the type.
struct KeyForm {
  nlohmann::json (*write)(const void* value, const KeyInfo&, WrittenFor);
  void (*read)(const nlohmann::json&, const KeyInfo&, const KeyPlace&, void* value);
  void (*scrub)(void* value, Leaves, const Scrubber&);
  bool (*equal)(const void* value, const void* other);
  void (*list)(const KeyInfo&, const std::string& key, LeavingKeys&);
  std::string (*type_text)(const KeyInfo&);
  std::string (*what_is_wrong)(const KeyInfo&, const nlohmann::json&);
};

template <class Value, class As>
inline constexpr KeyForm kKeyForm = {
    [](const void* value, const KeyInfo& info, WrittenFor purpose) -> nlohmann::json {
      return As::Write(*static_cast<const Value*>(value), info, purpose);
    },
    [](const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place, void* value) {
      As::Read(from, info, place, *static_cast<Value*>(value));
    },
    [](void* value, Leaves leaves, const Scrubber& scrubber) {
      As::Scrub(*static_cast<Value*>(value), leaves, scrubber);
    },
    [](const void* value, const void* other) {
      return *static_cast<const Value*>(value) == *static_cast<const Value*>(other);
    },
    &ListLeaving<Value>,
    &As::TypeText,
    &As::WhatIsWrong};

// `record`: one of the table's.
struct RecordKey : KeyInfo {
  const KeyForm* form = nullptr;
  const void* (*member)(const void* record) = nullptr;
  bool (*is_there)(const void* record) = nullptr;  // null: in every record

  bool IsIn(const void* record) const { return is_there == nullptr || is_there(record); }
  nlohmann::json Write(const void* record, WrittenFor purpose) const {
    return form->write(member(record), *this, purpose);
  }
  void Read(const nlohmann::json& from, const KeyPlace& place, void* record) const {
    form->read(from, *this, place, const_cast<void*>(member(record)));
  }
  std::string TypeText() const { return form->type_text(*this); }
  std::string WhatIsWrong(const nlohmann::json& given) const {
    return form->what_is_wrong(*this, given);
  }
};
using RecordKeys = std::span<const RecordKey>;

// A key on its way into the table of its record.
template <class Record>
struct KeyOf : RecordKey {
  // Restricts the key to records for which a function without captures is true.
  template <class There>
  constexpr KeyOf If(There) && {
    is_there = [](const void* record) { return There()(*static_cast<const Record*>(record)); };
    return *this;
  }
};

template <class Record, std::same_as<KeyOf<Record>>... Keys>
constexpr std::array<RecordKey, sizeof...(Keys)> KeyTable(Keys... keys) {
  return {keys...};
}

// A table of the keys of one and then of the other.
template <std::size_t kFirst, std::size_t kSecond>
constexpr auto Joined(const std::array<RecordKey, kFirst>& first,
                      const std::array<RecordKey, kSecond>& second) {
  std::array<RecordKey, kFirst + kSecond> joined;
  std::ranges::copy(second, std::ranges::copy(first, joined.begin()).out);
  return joined;
}

template <class Member>
struct MemberOf;
template <class Owner, class Type>
struct MemberOf<Type Owner::*> {
  using Record = Owner;
  using Value = Type;
};

// A record as it is made. One for all keys: its construction is more code than all else of a key.
template <class Record>
const Record& Initial() {
  static const Record kInitial;
  return kInitial;
}

// Of: a record that derives from the member's owner and has a table of its own. As: a form that
// differs from the type's.
template <auto kMember, class Of = typename MemberOf<decltype(kMember)>::Record,
          class As = Form<typename MemberOf<decltype(kMember)>::Value>>
constexpr KeyOf<Of> Key(const KeyInfo& info) {
  return {{info, &kKeyForm<typename MemberOf<decltype(kMember)>::Value, As>,
           [](const void* record) -> const void* {
             return &(static_cast<const Of*>(record)->*kMember);
           }}};
}

// The table of a record's keys. Each is read after the keys before it. Each record specialises it.
template <class Record>
RecordKeys KeysOf();

template <class Value>
concept IsRecord = requires {
  { KeysOf<Value>() } -> std::same_as<RecordKeys>;
}
&&std::is_class_v<Value>;

// initial: the record as it is made.
nlohmann::json WriteKeys(RecordKeys keys, const void* record, const void* initial,
                         WrittenFor purpose);

template <class Record>
nlohmann::json WriteRecord(const Record& record, WrittenFor purpose = WrittenFor::kFile) {
  return WriteKeys(KeysOf<Record>(), &record, &Initial<Record>(), purpose);
}

// Throws Error{kData} naming the file, the key, the value and the expected form. record: as made.
void ReadKeys(RecordKeys keys, const nlohmann::json& from, const KeyPlace& place, void* record);

// Throws as ReadKeys.
template <class Record>
void ReadRecord(const nlohmann::json& from, const KeyPlace& place, Record& record) {
  record = Record();
  ReadKeys(KeysOf<Record>(), from, place, &record);
}

// whole: its name in errors. Throws as ReadKeys.
template <class Record>
Record RecordOf(const nlohmann::json& stored, std::string_view whole) {
  Record record;
  ReadKeys(KeysOf<Record>(), stored, KeyPlace(whole), &record);
  return record;
}

void ScrubKeys(RecordKeys keys, void* record, const Scrubber& scrubber);

template <class Record>
void ScrubRecord(Record& record, const Scrubber& scrubber) {
  ScrubKeys(KeysOf<Record>(), &record, scrubber);
}

void ListLeavingKeys(RecordKeys keys, const std::string& before, LeavingKeys& list);

// The JSON types of values.

// 1 rather than 1.0, as people write it; infinity is null.
nlohmann::json NumberAsWritten(double value);

template <>
struct Form<bool> {
  static nlohmann::json Write(bool value, const KeyInfo&, WrittenFor) { return value; }
  static void Read(const nlohmann::json& from, const KeyInfo&, const KeyPlace& place, bool& value) {
    if (!from.is_boolean()) place.Expected(from, "true or false");
    value = from.get<bool>();
  }
  static void Scrub(bool&, Leaves, const Scrubber&) {}
  static std::string TypeText(const KeyInfo&) { return "true or false"; }
  static std::string WhatIsWrong(const KeyInfo&, const nlohmann::json& given) {
    return given.is_boolean() ? "" : "true or false";
  }
};

std::string WhatIsWrongWithNumber(const nlohmann::json& value, const KeyInfo& info);
std::string NumberText(const KeyInfo& info);  // "number, 0.001 to 60"

template <class Integer>
requires(std::integral<Integer> && !std::same_as<Integer, bool>) struct Form<Integer> {
  static nlohmann::json Write(Integer value, const KeyInfo&, WrittenFor) { return value; }
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   Integer& value) {
    const bool fits =
        from.is_number_unsigned()
            ? std::in_range<Integer>(from.get<std::uint64_t>())
            : from.is_number_integer() && std::in_range<Integer>(from.get<std::int64_t>());
    if (const std::string wrong = WhatIsWrong(info, from); info.has_range() && !wrong.empty())
      place.Expected(from, wrong);
    // JSON's own conversion would wrap.
    if (!fits) {
      place.Expected(from,
                     fmt::format("an integer from {} to {}", std::numeric_limits<Integer>::min(),
                                 std::numeric_limits<Integer>::max()));
    }
    value = from.get<Integer>();
  }
  static void Scrub(Integer&, Leaves, const Scrubber&) {}
  static std::string TypeText(const KeyInfo& info) {
    return info.has_range() ? "integer, " + Text(info.range) : "integer";
  }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    if (info.has_range()) return WhatIsWrongWithInteger(given, info.range);
    return given.is_number_integer() ? "" : "an integer";
  }
};

template <>
struct Form<double> {
  static nlohmann::json Write(double value, const KeyInfo&, WrittenFor) {
    return NumberAsWritten(value);
  }
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   double& value) {
    if (const std::string wrong = WhatIsWrong(info, from); !wrong.empty())
      place.Expected(from, wrong);
    value = from.get<double>();
  }
  static void Scrub(double&, Leaves, const Scrubber&) {}
  static std::string TypeText(const KeyInfo& info) { return NumberText(info); }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    return WhatIsWrongWithNumber(given, info);
  }
};

// Of strings that are one of `choices`; if there are none, of any.
std::string TextOfChoices(std::span<const std::string> choices);
std::string WhatIsWrongWithChoice(const nlohmann::json& given,
                                  std::span<const std::string> choices);

template <>
struct Form<std::string> {
  static nlohmann::json Write(const std::string& value, const KeyInfo& info, WrittenFor) {
    const bool none = value.empty() && (info.empty_is_null || *info.none);
    return none ? info.NoValue() : nlohmann::json(value);
  }
  static void Read(const nlohmann::json& from, const KeyInfo&, const KeyPlace& place,
                   std::string& value);
  static void Scrub(std::string& value, Leaves as, const Scrubber& scrubber) {
    value = scrubber.Scrubbed(value, as);
  }
  static std::string TypeText(const KeyInfo& info) { return TextOfChoices(info.Choices()); }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    return WhatIsWrongWithChoice(given, info.Choices());
  }
};

template <class Enum>
requires std::is_enum_v<Enum>
struct Form<Enum> {
  static nlohmann::json Write(Enum value, const KeyInfo&, WrittenFor) { return NameOf(value); }
  static void Read(const nlohmann::json& from, const KeyInfo&, const KeyPlace& place, Enum& value) {
    const std::string wrong = WhatIsWrongWithChoice(from, NamesOf<Enum>());
    if (!wrong.empty()) place.Expected(from, wrong);
    value = ValueOf<Enum>(from.get<std::string>());
  }
  static void Scrub(Enum&, Leaves, const Scrubber&) {}
  // The choices that a user has: those that `info` lists, else all names.
  static std::vector<std::string> Choices(const KeyInfo& info) {
    const std::span<const std::string> all = NamesOf<Enum>();
    return info.choices[0] ? info.Choices() : std::vector(all.begin(), all.end());
  }
  static std::string TypeText(const KeyInfo& info) { return TextOfChoices(Choices(info)); }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    return WhatIsWrongWithChoice(given, Choices(info));
  }
};

// null for nothing.
template <class Value>
struct OptionalForm {
  static nlohmann::json Write(const std::optional<Value>& value, const KeyInfo& info,
                              WrittenFor purpose) {
    return value ? Form<Value>::Write(*value, info, purpose) : info.NoValue();
  }
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   std::optional<Value>& value) {
    value.reset();
    if (from != info.NoValue()) Form<Value>::Read(from, info, place, value.emplace());
  }
  static void Scrub(std::optional<Value>& value, Leaves as, const Scrubber& scrubber) {
    if (value) Form<Value>::Scrub(*value, as, scrubber);
  }
  static std::string TypeText(const KeyInfo& info) { return Form<Value>::TypeText(info); }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    return Form<Value>::WhatIsWrong(info, given);
  }
};

template <class Value>
struct Form<std::optional<Value>> : OptionalForm<Value> {};

template <class Value>
struct Form<std::vector<Value>> {
  static nlohmann::json Write(const std::vector<Value>& values, const KeyInfo& info,
                              WrittenFor purpose) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& value : values) list.push_back(Form<Value>::Write(value, info, purpose));
    return list;
  }
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   std::vector<Value>& values) {
    if (!from.is_array()) place.Expected(from, "a list");
    values.clear();
    for (const nlohmann::json& each : from) {
      const std::string at = std::to_string(values.size());
      Value value{};
      Form<Value>::Read(each, info, KeyPlace(place, at), value);
      values.push_back(std::move(value));
    }
  }
  static void Scrub(std::vector<Value>& values, Leaves as, const Scrubber& scrubber) {
    for (auto&& value : values) {
      if constexpr (!std::is_same_v<Value, bool>) Form<Value>::Scrub(value, as, scrubber);
    }
  }
  static std::string TypeText(const KeyInfo&) {
    return std::is_same_v<Value, std::string> ? "list of strings" : "list";
  }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    const bool good = given.is_array() && std::ranges::all_of(given, [&](auto& each) {
                        return Form<Value>::WhatIsWrong(info, each).empty();
                      });
    return good ? "" : std::is_same_v<Value, std::string> ? "a list of strings" : "a list";
  }
};

// A table whose keys are data.
template <class Value>
struct Form<std::map<std::string, Value>> {
  using Map = std::map<std::string, Value>;
  static nlohmann::json Write(const Map& values, const KeyInfo& info, WrittenFor purpose) {
    nlohmann::json table = nlohmann::json::object();
    for (const auto& [name, value] : values) table[name] = Form<Value>::Write(value, info, purpose);
    return table;
  }
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   Map& values) {
    if (!from.is_object()) place.Expected(from, "a table");
    values.clear();
    for (const auto& [name, value] : from.items())
      Form<Value>::Read(value, info, KeyPlace(place, name), values[name]);
  }
  static void Scrub(Map& values, Leaves as, const Scrubber& scrubber) {
    Map scrubbed;
    for (auto& [name, value] : values) {
      Form<Value>::Scrub(value, as, scrubber);
      scrubbed.emplace(scrubber.Scrubbed(name, Leaves::kData), std::move(value));
    }
    values = std::move(scrubbed);
  }
  static std::string TypeText(const KeyInfo&) { return "table"; }
  static std::string WhatIsWrong(const KeyInfo&, const nlohmann::json& given) {
    return given.is_object() ? "" : "a table";
  }
};

// A table of scalars. The part that owns the options knows the keys.
template <>
struct Form<Options> {
  static nlohmann::json Write(const Options& options, const KeyInfo&, WrittenFor);
  static void Read(const nlohmann::json& from, const KeyInfo& info, const KeyPlace& place,
                   Options& options);
  static void Scrub(Options& options, Leaves as, const Scrubber& scrubber);
  static std::string TypeText(const KeyInfo& info) {
    return info.or_name ? "table, or a name" : "table";
  }
  static std::string WhatIsWrong(const KeyInfo& info, const nlohmann::json& given) {
    if (info.or_name && given.is_string()) return "";
    return given.is_object() ? "" : info.or_name ? "a table or a name" : "a table";
  }
};

// Values whose form no struct describes: plans, descriptions of series. Their reader checks them.
template <>
struct Form<nlohmann::json> {
  static nlohmann::json Write(const nlohmann::json& value, const KeyInfo&, WrittenFor) {
    return value;
  }
  static void Read(const nlohmann::json& from, const KeyInfo&, const KeyPlace&,
                   nlohmann::json& value) {
    value = from;
  }
  // Every text in it, and every key.
  static void Scrub(nlohmann::json& value, Leaves as, const Scrubber& scrubber);
  static std::string TypeText(const KeyInfo& info) { return info.type; }
  static std::string WhatIsWrong(const KeyInfo&, const nlohmann::json&) { return ""; }
};

template <class Record>
requires IsRecord<Record>
struct Form<Record> {
  static constexpr bool kHasTable = true;
  static nlohmann::json Write(const Record& record, const KeyInfo&, WrittenFor purpose) {
    return WriteRecord(record, purpose);
  }
  static void Read(const nlohmann::json& from, const KeyInfo&, const KeyPlace& place,
                   Record& record) {
    ReadRecord(from, place, record);
  }
  static void Scrub(Record& record, Leaves, const Scrubber& scrubber) {
    ScrubRecord(record, scrubber);
  }
  static std::string TypeText(const KeyInfo& info) { return *info.type ? info.type : "table"; }
  static std::string WhatIsWrong(const KeyInfo&, const nlohmann::json& given) {
    return given.is_object() ? "" : "a table";
  }
};

// Values within optional ones, lists and tables.
template <class Value>
struct Within {
  using Type = void;
};
template <class Value>
struct Within<std::optional<Value>> {
  using Type = Value;
};
template <class Value>
struct Within<std::vector<Value>> {
  using Type = Value;
};
template <class Value>
struct Within<std::map<std::string, Value>> {
  using Type = Value;
};

template <>
std::span<const std::string> NamesOf<Leaves>();

template <class Value>
void ListLeaving(const KeyInfo& info, const std::string& key, LeavingKeys& list) {
  using Inner = typename Within<Value>::Type;
  if constexpr (!std::is_void_v<Inner>) {
    constexpr bool kNamed = std::is_same_v<Value, std::map<std::string, Inner>>;
    ListLeaving<Inner>(info, kNamed ? key + ".*" : key, list);
  } else if constexpr (requires { Form<Value>::kHasTable; }) {
    ListLeavingKeys(KeysOf<Value>(), key + ".", list);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    list.emplace(key, "number");
  } else {
    list.emplace(key, NameOf(info.leaves));
  }
}

}  // namespace sparfuse::harness
