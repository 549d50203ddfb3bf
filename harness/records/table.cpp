#include "harness/records/table.hpp"

#include <algorithm>

#include "harness/records/record.hpp"

namespace sparfuse::harness {

template <>
const std::vector<RecordKey<Table>>& KeysOf<Table>() {
  using T = Table;
  static const std::vector<RecordKey<T>> kKeys = {
      Key<&T::title>({.name = "title", .leaves = Leaves::kWords}),
      Key<&T::caption>({.name = "caption", .leaves = Leaves::kWords}),
      Key<&T::columns>({.name = "columns"}),
      Key<&T::alignment>({.name = "alignment"}),
      Key<&T::rows>({.name = "rows", .leaves = Leaves::kWords}),
      Key<&T::looks>({.name = "looks"}),
      Key<&T::notes>({.name = "notes", .leaves = Leaves::kWords})};
  return kKeys;
}

void Table::AddColumn(std::string heading, char aligned) {
  columns.push_back(std::move(heading));
  alignment += aligned;
}

void Table::AddRow(std::vector<std::string> row, std::string look) {
  looks.resize(rows.size());
  rows.push_back(std::move(row));
  looks.push_back(std::move(look));
}

std::size_t Table::NoteOf(const std::string& note) {
  const auto found = std::ranges::find(notes, note);
  if (found != notes.end()) return static_cast<std::size_t>(found - notes.begin()) + 1;
  notes.push_back(note);
  return notes.size();
}

nlohmann::json ToJson(const Table& table) { return WriteRecord(table); }

}  // namespace sparfuse::harness
