// Describes the measurements of a fingerprint, and compares two fingerprints.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/transport/topology.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// Bytes that a rank has before an all-reduce and after an all-gather.
inline constexpr std::array<std::size_t, 3> kFingerprintBytes = {4096, 262144, 4194304};

// What decides how a quantity depends on the ranks that were measured at once.
enum class FingerprintScope {
  kLink,        // two ranks: not on their number
  kCollective,  // on all
  kRank         // on those that share a node
};

struct FingerprintQuantity {
  const char* name;
  const char* words;  // "bandwidth between nodes"
  const char* unit;   // of tables: "s", "Gbit/s", "GB/s", "Gflop/s"
  FingerprintScope scope;
  bool more_is_better;
};

// In the order in which differences are named: links between nodes first.
std::span<const FingerprintQuantity> FingerprintQuantities();
// "all_reduce_4096_bytes"
std::string CollectiveQuantity(const char* collective, std::size_t bytes);

// Quantities whose intervals are apart, and whose values are by more than this, differ: what a
// launch leaves open is not in its intervals.
inline constexpr double kFingerprintsDifferBy = 1.25;

struct FingerprintDifference {
  const FingerprintQuantity* quantity = nullptr;
  double first = 0, second = 0;
  // Where it is not the mean that differs but the slowest: of the second, its ranks.
  std::vector<int> ranks;
};

// Empty where they are the same. What only one of them has, and what unlike numbers of ranks make
// incomparable, is left out.
std::vector<FingerprintDifference> DifferencesOf(const Fingerprint& first,
                                                 const Fingerprint& second);

// "" where all of two fingerprints can be compared, else what cannot, and why.
std::string WhatIsNotCompared(const Fingerprint& first, const Fingerprint& second);

// "b's bandwidth between nodes is half of a's (5.1 Gbit/s against 10.2 Gbit/s)",
// "b's top-k selection takes 1.9 times as long as a's (5.7 ms against 3 ms)".
std::string SentenceOf(const FingerprintDifference& difference, const std::string& first,
                       const std::string& second);

// Null where the fingerprint lacks it.
const FingerprintValue* Find(const Fingerprint& fingerprint, const FingerprintQuantity& quantity);

// "10.2 Gbit/s", "3.1 ms"
std::string ValueText(const FingerprintQuantity& quantity, double value);

struct RankPair {
  int lower = 0, upper = 0;
  LinkClass link = LinkClass::kIntraNode;
  bool operator==(const RankPair&) const = default;
};

// Pairs that exchange at once, phase by phase; none is in a phase with another pair of its node.
// The first two ranks of each node; then the first ranks of nodes that follow one another: the
// first node with the second, the third with the fourth, ...; then the second with the third, ...
std::vector<std::vector<RankPair>> PhasesOf(const Topology& topology);

}  // namespace sparfuse::harness
