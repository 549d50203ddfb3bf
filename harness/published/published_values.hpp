// Reads what an experiment file takes of the papers' own numbers.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/catalog/catalog.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

// The [published] table of an experiment file: a paper, and what it calls our methods.
struct Published {
  std::string paper;       // as in the column `paper`
  nlohmann::json methods;  // {ours: [theirs, ...]}
  nlohmann::json rows;     // of the paper: one object {column: text} a number
};

// nullopt where the file has no [published]. Reads published-numbers.csv in `folder`. Throws
// Error{kConfig} naming file, line, key, value and the nearest known name for a paper or a method
// that nobody published or nobody registered, Error{kData} for a damaged published-numbers.csv.
std::optional<Published> ReadPublished(const TomlFile& file, const Catalog& catalog,
                                       const std::filesystem::path& folder);

// What the `published` table at `at`, of a figure that shows `metric` (empty: all metrics) for
// these workloads, draws: {"paper", "methods", "rows": [row with "of": workload or null]}. Rows of
// `stated` artifacts ("A vs B" gains) have "stated": true. Throws Error{kConfig} for unknown names
// and for a mapping that no row matches.
nlohmann::json PublishedOfFigure(const TomlFile& file, const std::string& at,
                                 const Published& published, const std::string& metric,
                                 std::span<const std::string> workloads);

}  // namespace sparfuse::harness
