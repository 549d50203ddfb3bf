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
  std::vector<std::string> refused;  // sentences: what stayed out, and why
  // Trials that ran in this store and that annotations of the bundle call bad, with the reason:
  // "ID (REASON)". Left as they are without MergeRequest::take_annotations.
  std::vector<std::string> held;
  std::vector<std::string> not_checked;  // WhatIsNotChecked
};

struct MergeRequest {
  bool take_annotations = false;  // of others, of trials that ran in this store
};

// Adds what the store lacks. A trial is present where the store's of its id leaves with the same
// bytes, names that were removed apart. Refused, each by itself: what
// does not hold (Verify), and what has an id that the store has with other bytes; refused whole: a
// bundle whose table its trials do not give. A call that is killed leaves each trial whole or
// unfinished; the next one goes on. The index has to be opened afterwards.
//
//   rows  of the store, whose hosts' names do not count in what is compared.
MergeSummary Merge(const Store& store, const StoreLock& lock, const Bundle& bundle,
                   const std::vector<TrialRow>& rows = {}, const MergeRequest& request = {});

}  // namespace sparfuse::harness
