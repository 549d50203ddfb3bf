// Reads the papers' own numbers: published-numbers.csv and ddl-benchmarks.csv of results/published,
// a user's own files with the same columns, and the choice of an experiment file among them.
// README.md there explains the columns and the origin of the numbers.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

struct PublishedNumber {
  std::string paper, artifact, workload, model, dataset, workers, network, method, sparsifier,
      density, metric, stated;  // as the file gives the value
  // `stated` as a number, of "925.020 +- 4.42" the mean; absent for "28.20-58.28" or ">80".
  std::optional<double> value;
  std::optional<double> deviation;  // the number after "+-"
  std::string unit, source, confidence;
};

// All rows in the order of the file. Throws Error{kConfig} naming file, line and column of an
// unexpected value.
std::vector<PublishedNumber> ReadPublished(const std::filesystem::path& file);
std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name);

// All numbers of the project's folder, then those of the user's: every .csv whose name the
// project's folder does not have, in order of name. `own` may be missing. Throws as ReadPublished.
std::vector<PublishedNumber> ReadAllPublished(const std::filesystem::path& folder,
                                              const std::filesystem::path& own);

// The [published] table of an experiment file: a paper, and its names for our methods.
struct Published {
  std::string paper;                                        // as in the column `paper`
  std::map<std::string, std::vector<std::string>> methods;  // theirs, by ours
  std::vector<PublishedNumber> rows;                        // of the paper
};

// nullopt if the file has no [published]. Reads the numbers as ReadAllPublished. Throws
// Error{kConfig} naming file, line, key, value and the nearest known name for an unknown paper or
// method, Error{kData} for a damaged published-numbers.csv.
std::optional<Published> ReadPublished(const TomlFile& file, const Catalog& catalog,
                                       const std::filesystem::path& folder,
                                       const std::filesystem::path& own = {});

// The published numbers of a figure, from its `published` table at `at`. The figure shows `metric`
// (empty: all metrics) for these workloads. Returns {"paper", "methods", "rows": [{column: text},
// with "of": workload or null]}. Rows of `stated` artifacts ("A vs B" gains) have "stated": true.
// It is JSON, as a part of the figure's entry. Throws Error{kConfig} for unknown names and for a
// mapping that no row matches.
nlohmann::json PublishedOfFigure(const TomlFile& file, const std::string& at,
                                 const Published& published, const std::string& metric,
                                 std::span<const std::string> workloads);

// The keys of [published], and of a figure's `published`.
std::vector<GivenKey> PublishedKeys();
std::vector<GivenKey> PublishedKeysOfFigures();

}  // namespace sparfuse::harness
