// Reads a table of others' results: comma-separated values, a result a row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {

// All rows, in the order of the file. A key stands in the column that the map names for it, else as
// the map's constant, else in a column of its own name. Throws Error{kConfig} with all that is
// wrong: what is missing, of another type, unknown, in no unit of its metric, or there twice.
// unread: gets the names of columns that nothing is read from.
std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread = nullptr);

}  // namespace sparfuse::harness
