// Adds the trials and annotations of bundles to a store: a union of sets.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/bundled_trial.hpp"

namespace sparfuse::harness {

struct MergeSummary {
  std::vector<std::string> added;    // ids of trials that the store did not have
  std::size_t present = 0;           // trials that it had
  std::size_t annotations = 0;       // added
  std::vector<std::string> refused;  // sentences: each trial that stayed out, and why
  // Trials that ran in this store and that annotations of the bundle call bad, with the reason:
  // "ID (REASON)". Left as they are without MergeRequest::take_annotations.
  std::vector<std::string> held;
  std::vector<std::string> not_checked;  // WhatIsNotChecked
};

struct MergeRequest {
  bool take_annotations = false;  // of others, of trials that ran in this store
};

// Adds the trials that the store lacks. A trial is present if the store has one of its id that
// would leave with the same bytes, apart from removed names. Refuses single trials that do not pass
// Verify, and trials whose id the store has with other bytes. Refuses the whole bundle if its table
// does not follow from its trials. If a call is killed, each trial is whole or unfinished, and the
// next call goes on. The index must be opened afterwards.
//
//   rows  of the store; the comparison ignores the names of their hosts.
MergeSummary Merge(const Store& store, const StoreLock& lock, const Bundle& bundle,
                   const std::vector<TrialRow>& rows = {}, const MergeRequest& request = {});

}  // namespace sparfuse::harness
