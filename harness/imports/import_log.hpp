// Reads the log of others' training: lines by patterns, or a table of steps by its columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {

// What the log shows: the throughput or, where neither rates nor the batch are known, the step time
// as the median over steps, as of our own trials; the last evaluation with the curve that led to
// it; or both. Throws Error{kConfig} with all that is wrong.
std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog);

}  // namespace sparfuse::harness
