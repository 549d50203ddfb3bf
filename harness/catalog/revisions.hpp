// Tells results of unlike code apart: by the revisions of the parts that a trial uses, and by the
// source files that they were built from, so that other code is told though nobody raised a
// revision.
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

// The folder that a part's code stands in: of `kind` "sparsifier", "planner" or "strategy" the one
// that begins with the same word as the part's name (core/sparsify/dgc for "dgc",
// baselines/horovod-fusion for "horovod-cycle"), else where its kind has those of no paper. Forms
// "name@origin" of published code stand in core/sparsify/published.
std::string SourceFolderOf(std::string_view kind, std::string_view name);

// {"sparsifier:dgc": "0123456789ab", ...} for the parts of a cell or a profile: the head of the
// hash of the files in their folder when this program was built; of a method its file's, of a
// workload all of workloads/. Code that several parts share is not in it. Not part of any identity.
std::map<std::string, std::string> SourcesOf(const CellConfig& config);

// {"engine": 1, "method:wfbp": 1, "strategy:ahead": 1, ...} of a cell or a profile.
std::map<std::string, std::int64_t> RevisionsOf(const Catalog& catalog, const CellConfig& config);

// What differs between two tables of scalars or tables, JSON of any keys, as "density 0.01 ->
// 0.001, workers 2 -> 4";
// "" where nothing does.
std::string WhatDiffers(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace sparfuse::harness
