// Compares the measurements of the systems themselves, before any trial.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/compare/differences.hpp"
#include "harness/compare/side.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// The fingerprint of the newest trial of a side that has one.
std::optional<Fingerprint> FingerprintOf(const SystemSide& side);

// The changes of a side's system during runs, each sentence once, from their fingerprints before
// and after.
std::vector<std::string> ChangedDuringRuns(const SystemSide& side);

// Sentences. For each side with unlike nodes, a description of them. For each, changes during its
// runs. For each side after the first, a replaced card, then the differences of the fingerprints,
// links first. If one side has no fingerprint and another has, a sentence on that.
std::vector<std::string> WhatDiffersInHardware(const std::vector<SystemSide>& sides,
                                               const std::vector<FactDifference>& differences);

// The quantities that differ between any two, as facts: "fingerprint: bandwidth between nodes".
std::vector<FactDifference> FingerprintFacts(const std::vector<SystemSide>& sides);

}  // namespace sparfuse::harness
