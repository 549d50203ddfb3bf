// Makes what the tables of a comparison have in common.
#pragma once

#include <cstddef>
#include <string>

#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

// The position of a note, from 1; it is added where the table lacks it.
std::size_t NoteOf(Table& table, const std::string& note);

}  // namespace sparfuse::harness
