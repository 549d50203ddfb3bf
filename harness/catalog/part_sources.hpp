// Tells from which source files the parts of this program were built, so that stored trials of
// other code can be told though nobody raised a revision.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

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
nlohmann::json SourcesOf(const CellConfig& config);

}  // namespace sparfuse::harness
