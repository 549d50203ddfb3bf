// Finds and reads workloads that a file of the user describes, NAME.json (docs/model-tables.md). An
// experiment file says "table:FILE.json". A cell's configuration has the file's name and the head
// of the hash of its content, "table:NAME@0123456789ab". An edited file makes another cell, a moved
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

// `text`: the content of the file at `path`, whose stem is the workload's key `name`. The
// workload's own name is left empty, and its summary is the file's `source`. Its table has at least
// one tensor and at least one multiply-accumulate, and all tensors are in ready order.
//
// Throws Error{kConfig} naming the file, the tensor, the key, its value and the expected form, or
// Error{kData} if the text is not JSON.
workloads::WorkloadDescriptor ParseModelTable(const std::filesystem::path& path,
                                              std::string_view text);

// Turns the words of an experiment file in `folder` into the words of its cells. FindWorkload then
// knows the table. A relative FILE lies in `folder` or else in the working directory. Throws
// Error{kConfig} if it is in neither, or as ParseModelTable.
std::string TableWorkloadName(std::string_view given, const std::filesystem::path& folder);

// NAME of either; of other workloads their name. Within a part of an experiment no two tables have
// one NAME.
std::string WorkloadLabel(std::string_view workload);

// Whether `given`, of an experiment file, may mean the cell's `resolved`: both are tables of one
// NAME.
bool MeansTable(std::string_view given, std::string_view resolved);

// A workload of the catalog that can be trained. Throws Error{kConfig}, with the reason if it is a
// table.
const workloads::WorkloadDescriptor& NeedTrainable(const Catalog& catalog,
                                                   const std::string& workload);

}  // namespace sparfuse::harness
