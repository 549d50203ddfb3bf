// Finds and reads workloads that a file of the user describes, NAME.json (docs/model-tables.md). An
// experiment file says "table:FILE.json"; a cell's configuration has the file's name and the head
// of the hash of its content, "table:NAME@0123456789ab": an edited file makes another cell, a moved
// file does not.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "harness/catalog/catalog.hpp"
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

// From what an experiment file in `folder` says to what its cells say; FindWorkload then knows the
// table. A relative FILE lies in `folder` or else in the working directory. Throws Error{kConfig}
// where it is in neither, or as ParseModelTable.
std::string TableWorkloadName(std::string_view given, const std::filesystem::path& folder);

// NAME of either; of other workloads their name. Within a part of an experiment no two tables have
// one NAME.
std::string WorkloadLabel(std::string_view workload);

// Whether `given`, of an experiment file, may mean the cell's `resolved`: both are tables of one
// NAME.
bool MeansTable(std::string_view given, std::string_view resolved);

// A workload of the catalog, for what trains it. Throws Error{kConfig}, for a table with the
// reason.
const workloads::WorkloadDescriptor& NeedTrainable(const Catalog& catalog,
                                                   const std::string& workload);

}  // namespace sparfuse::harness
