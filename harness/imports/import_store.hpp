// Adds others' results to the store as trials of the mode "imported".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/imports/imported_result.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// How results stand to those that the store has: by system, source, configuration and run.
struct ImportPlan {
  std::vector<const ImportedResult*> add;
  std::size_t present = 0;           // with the same numbers
  std::vector<std::string> refused;  // with others: sentences
};

// rows: the store's. What was called bad is as good as not there.
ImportPlan PlanImport(std::span<const ImportedResult> results, const std::vector<TrialRow>& rows);

// Makes each a trial, whole or unfinished as in a run: after a kill the same import goes on.
// Returns the ids.
std::vector<std::string> AddImported(const Store& store, const StoreLock& lock,
                                     std::span<const ImportedResult* const> results);

}  // namespace sparfuse::harness
