// Reads the file of a model table, NAME.json, which docs/model-tables.md describes key by key.
#pragma once

#include <filesystem>
#include <string_view>

#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// Raised when results on tables may change though their files do not.
inline constexpr int kModelTableRevision = 1;

// `text`: the content of the file at `path`, whose stem is its key `name`. The workload's own name
// is left empty, its summary is the file's `source`, and its table has at least one tensor, all in
// ready order, and a multiply-accumulate.
//
// Throws Error{kConfig} naming the file, the tensor, the key, its value and what was expected, or
// Error{kData} where the text is no JSON.
workloads::WorkloadDescriptor ParseModelTable(const std::filesystem::path& path,
                                              std::string_view text);

}  // namespace sparfuse::harness
