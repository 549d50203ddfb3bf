// Reads the [[claim]] tables of a part, which say what metrics of its cells should show.
#pragma once

#include <string>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// Fills claims of `part`, whose tables are at `pointer` ("" or "/part/2") and whose cells are
// there. Errors: Error{kConfig} with file, line, key and what was expected.
void ReadClaims(const TomlFile& file, const std::string& pointer, Part& part);

}  // namespace sparfuse::harness
