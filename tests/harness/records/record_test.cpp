// Tests records with a table of their keys: writing, reading, errors, identity, and exported
// values.
#include "harness/records/record.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {

enum class Colour : std::uint8_t { kGrey, kRed };

struct Inner {
  double seconds = 0;
  bool operator==(const Inner&) const = default;
};

struct Made {
  bool has_more = false;
  int count = 1;
  std::string name;
  Colour colour = Colour::kGrey;
  std::optional<Inner> inner;
  std::vector<std::string> words;
  std::map<std::string, Inner> table;
  Options options;
  int added = 7;
  std::string note;
  int more = 0;
  bool operator==(const Made&) const = default;
};

template <>
std::span<const std::string> NamesOf<Colour>() {
  static const std::string kNames[] = {"grey", "red"};
  return kNames;
}

template <>
RecordKeys KeysOf<Inner>() {
  static constexpr auto kKeys =
      KeyTable<Inner>(Key<&Inner::seconds>({.name = "seconds", .range = {0, 60}}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Made>() {
  static constexpr auto kKeys = KeyTable<Made>(
      Key<&Made::has_more>({.name = "has_more"}),
      Key<&Made::count>({.name = "count", .range = {1, 9}}),
      Key<&Made::name>({.name = "name", .empty_is_null = true}),
      Key<&Made::colour>({.name = "colour"}), Key<&Made::inner>({.name = "inner"}),
      Key<&Made::words>({.name = "words", .leaves = Leaves::kWords}),
      Key<&Made::table>({.name = "table"}), Key<&Made::options>({.name = "options"}),
      Key<&Made::added>({.name = "added", .later = true}),
      Key<&Made::note>({.name = "note", .optional = true}),
      Key<&Made::more>({.name = "more"}).If([](const Made& made) { return made.has_more; }));
  return kKeys;
}

// The same record in the form of a file.
struct Written : Made {};

template <>
RecordKeys KeysOf<Written>() {
  static constexpr auto kKeys =
      KeyTable<Written>(Key<&Written::name, Written>({.name = "title", .none = "unknown"}),
                        Key<&Written::inner, Written>({.name = "time", .none = "CHANGEME"}));
  return kKeys;
}

namespace {

using nlohmann::json;

Made Full() {
  return {true, 3,   "a", Colour::kRed, Inner{1.5}, {"x", "y"}, {{"k", {2}}}, {{"o", 0.5}},
          8,    "n", 5};
}

Made Read(const json& from) {
  Made made;
  ReadRecord(from, KeyPlace("FILE"), made);
  return made;
}

std::string Refusal(const char* pointer, const json& value) {
  json stored = WriteRecord(Full());
  stored[json::json_pointer(pointer)] = value;
  return testing::ErrorOf([&] { Read(stored); }, FailureKind::kData);
}

TEST(Record, ComesBackFromWhatIsWritten) {
  EXPECT_EQ(Read(WriteRecord(Full())), Full());
  EXPECT_EQ(Read(WriteRecord(Made())), Made());
}

TEST(Record, IsWrittenAsPeopleWriteIt) {
  EXPECT_EQ(WriteRecord(Full()).dump(),
            R"({"added":8,"colour":"red","count":3,"has_more":true,"inner":{"seconds":1.5},)"
            R"("more":5,"name":"a","note":"n","options":{"o":0.5},"table":{"k":{"seconds":2}},)"
            R"("words":["x","y"]})");
  EXPECT_EQ(WriteRecord(Made()).dump(),
            R"({"added":7,"colour":"grey","count":1,"has_more":false,"inner":null,"name":null,)"
            R"("options":{},"table":{},"words":[]})");
}

TEST(Record, ErrorsNameFileKeyValueAndWhatWasExpected) {
  EXPECT_EQ(Refusal("/count", 10), "FILE: count = 10: expected an integer from 1 to 9");
  EXPECT_EQ(Refusal("/count", "three"), "FILE: count = \"three\": expected an integer from 1 to 9");
  EXPECT_EQ(Refusal("/inner/seconds", 61),
            "FILE: inner.seconds = 61: expected a number from 0 to 60");
  EXPECT_EQ(Refusal("/table/k", json::object()), "FILE: table.k.seconds is missing");
  EXPECT_EQ(Refusal("/words/1", 3), "FILE: words.1 = 3: expected a string");
  EXPECT_EQ(Refusal("/colour", "rad"),
            "FILE: colour = \"rad\": expected one of grey, red; did you mean \"red\"?");
  EXPECT_EQ(Refusal("/has_more", 1), "FILE: has_more = 1: expected true or false");
  EXPECT_EQ(Refusal("/coulor", 1),
            "FILE: coulor: unknown key, perhaps of a later program; did you mean \"colour\"?");
  EXPECT_THROW(Read(json::array()), Error);
}

TEST(Record, MayHaveASecondFormWithAWordInThePlaceOfWhatIsNotThere) {
  Written written;
  EXPECT_EQ(WriteRecord(written).dump(), R"({"time":"CHANGEME","title":"unknown"})");
  written.name = "a";
  ReadRecord(WriteRecord(Written()), KeyPlace("FILE"), written);
  EXPECT_EQ(written.name, "");
  EXPECT_FALSE(written.inner);
  written.inner = Inner{2};
  EXPECT_EQ(WriteRecord(written).dump(), R"({"time":{"seconds":2},"title":"unknown"})");
}

TEST(Record, KeysOfSomeRecordsAreUnknownInOthers) {
  json stored = WriteRecord(Made());
  stored["more"] = 1;
  EXPECT_THROW(Read(stored), Error);
}

TEST(Record, ALaterKeyMayBeMissingAndIsNoPartOfAnIdentityWhereItIsInitial) {
  json stored = WriteRecord(Full());
  stored.erase("added");
  EXPECT_EQ(Read(stored).added, 7);
  Made made = Full();
  EXPECT_TRUE(WriteRecord(made, WrittenFor::kIdentity).contains("added"));
  made.added = 7;
  EXPECT_TRUE(WriteRecord(made).contains("added"));
  EXPECT_FALSE(WriteRecord(made, WrittenFor::kIdentity).contains("added"));
}

TEST(Record, WhatNoRecordHoldsIsRefusedWhereItIsParsed) {
  for (const std::string& text :
       {std::string(R"({"count": 1e999})"), std::string(100'000, '[') + std::string(100'000, ']')})
    EXPECT_THROW(ParseJson(text, "FILE"), Error);
}

class Marker : public Scrubber {
 public:
  std::string Scrubbed(const std::string& text, Leaves as) const override {
    return (as == Leaves::kWords ? "words:" : "data:") + text;
  }
};

TEST(Record, EveryTextIsScrubbedAsItsKeySays) {
  Made made = Full();
  made.options["s"] = std::string("t");
  ScrubRecord(made, Marker());
  EXPECT_EQ(made.name, "data:a");
  EXPECT_EQ(made.words, (std::vector<std::string>{"words:x", "words:y"}));
  EXPECT_TRUE(made.table.contains("data:k"));
  EXPECT_EQ(made.options.at("s"), OptionValue(std::string("data:t")));
  EXPECT_EQ(made.count, 3);
}

}  // namespace
}  // namespace sparfuse::harness
