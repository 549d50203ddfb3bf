// Defines the fingerprint of a system: a few operations, measured, by which a slow link or a
// replaced card is found whatever the system is called.
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

// A fingerprint is {"ranks", "ranks_per_node", "threads", "device", "transport", "link",
// "all_reduce", "all_gather", "quantities"}, these by name:
//   {"value": mean over ranks, or pairs of them, of medians,
//    "low", "high": 95 % of it,
//    "n": repetitions, "unit",
//    "worst": {"value", "ranks"}: the slowest of them, where there are several}.
using Fingerprint = nlohmann::json;

// Quantities whose intervals are apart, and whose values are by more than this, differ: what a
// launch leaves open is not in its intervals.
inline constexpr double kFingerprintsDifferBy = 1.25;

struct FingerprintDifference {
  const FingerprintQuantity* quantity = nullptr;
  double first = 0, second = 0;
  // Where it is not the mean that differs but the slowest: of the second, its ranks.
  std::vector<int> ranks;
  // Above 1: so many times as slow is the second.
  double times_as_slow() const;
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

// "10.2 Gbit/s", "3.1 ms"
std::string ValueText(const FingerprintQuantity& quantity, double value);

}  // namespace sparfuse::harness
