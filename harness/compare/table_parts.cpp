#include "harness/compare/table_parts.hpp"

#include <algorithm>

namespace sparfuse::harness {

std::size_t NoteOf(Table& table, const std::string& note) {
  const auto found = std::ranges::find(table.notes, note);
  if (found != table.notes.end()) return static_cast<std::size_t>(found - table.notes.begin()) + 1;
  table.notes.push_back(note);
  return table.notes.size();
}

}  // namespace sparfuse::harness
