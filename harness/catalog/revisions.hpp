// Distinguishes results of different code: by the revisions of the parts that a trial uses, and by
// the source files of those parts, in case nobody raised a revision.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "harness/catalog/catalog.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// A folder with code of parts, and the head of the hash of its source files when this program was
// built; the table is written by source_hashes.cmake.
struct FolderHash {
  std::string_view folder, hash;
};
std::span<const FolderHash> FolderHashes();

// The folder with a part's code. For the kinds "sparsifier", "planner" and "strategy" it is the
// folder that begins with the first word of the part's name: core/sparsify/dgc for "dgc",
// baselines/horovod-fusion for "horovod-cycle". If there is none, it is the folder of the kind's
// parts that come from no paper. Forms "name@origin" of published code are in
// core/sparsify/published.
std::string SourceFolderOf(std::string_view kind, std::string_view name);

// {"sparsifier:dgc": "0123456789ab", ...} for the parts of a cell or a profile: the head of the
// hash of the files in their folder when this program was built. A method has its file's hash, and
// a workload the hash of all of workloads/. Code that several parts share is not included. No
// identity depends on it.
std::map<std::string, std::string> SourcesOf(const CellConfig& config);

// {"engine": 1, "method:wfbp": 1, "strategy:ahead": 1, ...} of a cell or a profile.
std::map<std::string, std::int64_t> RevisionsOf(const Catalog& catalog, const CellConfig& config);

// The differences between two tables of scalars or tables, JSON with any keys, as "density 0.01 ->
// 0.001, workers 2 -> 4"; "" if there are none.
std::string WhatDiffers(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace sparfuse::harness
