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

// How a quantity depends on the ranks that were measured at once.
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

// In the order in which differences are listed: links between nodes first.
std::span<const FingerprintQuantity> FingerprintQuantities();
// "all_reduce_4096_bytes"
std::string CollectiveQuantity(const char* collective, std::size_t bytes);

// Quantities differ if their intervals do not overlap and their values differ by more than this
// factor. Intervals do not include the variation from launch to launch.
inline constexpr double kFingerprintsDifferBy = 1.25;

struct FingerprintDifference {
  const FingerprintQuantity* quantity = nullptr;
  double first = 0, second = 0;
  // If not the mean differs but the slowest rank does: the slow ranks of the second.
  std::vector<int> ranks;
};

// Empty if they are equal. Quantities of only one of them are left out, and so are those that
// cannot be compared with different numbers of ranks.
std::vector<FingerprintDifference> DifferencesOf(const Fingerprint& first,
                                                 const Fingerprint& second);

// "" if everything in two fingerprints can be compared, else the quantities that cannot, and why.
std::string WhatIsNotCompared(const Fingerprint& first, const Fingerprint& second);

// "b's bandwidth between nodes is half of a's (5.1 Gbit/s against 10.2 Gbit/s)",
// "b's top-k selection takes 1.9 times as long as a's (5.7 ms against 3 ms)".
std::string SentenceOf(const FingerprintDifference& difference, const std::string& first,
                       const std::string& second);

// Null if the fingerprint lacks it.
const FingerprintValue* Find(const Fingerprint& fingerprint, const FingerprintQuantity& quantity);

// "10.2 Gbit/s", "3.1 ms"
std::string ValueText(const FingerprintQuantity& quantity, double value);

struct RankPair {
  int lower = 0, upper = 0;
  LinkClass link = LinkClass::kIntraNode;
  bool operator==(const RankPair&) const = default;
};

// Pairs that exchange at once, phase by phase; no two pairs of a phase share a node. First the
// first two ranks of each node. Then the first ranks of nodes that follow one another: the first
// node with the second, the third with the fourth, ...; then the second with the third, ...
std::vector<std::vector<RankPair>> PhasesOf(const Topology& topology);

}  // namespace sparfuse::harness
