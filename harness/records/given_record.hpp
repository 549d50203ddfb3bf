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
constexpr KeyOf<Of> Given(const char* name, const char* fallback, const char* meaning,
                          KeyInfo more = {}) {
  more.name = name;
  more.fallback = fallback;
  more.meaning = meaning;
  return Key<kMember, Of>(more);
}

// Those of `keys` that files may give, in their order.
std::vector<GivenKey> GivenKeysOf(RecordKeys keys);

// Fills a record of these keys, `record`, from the table at `at`, called `what` in errors. Keys
// that are not there keep their values. A key without a default must be there; if it is JSON, its
// reader checks that. more: further keys of the table, which the caller reads. Throws
// Error{kConfig}: "FILE:LINE: key = value: expected ...".
void ReadGivenKeys(RecordKeys keys, const TomlFile& file, const std::string& at,
                   std::string_view what, void* record, std::span<const std::string> more);

template <class Record>
void ReadTable(const TomlFile& file, const std::string& at, std::string_view what, Record& record,
               std::span<const std::string> more = {}) {
  ReadGivenKeys(KeysOf<Record>(), file, at, what, &record, more);
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
