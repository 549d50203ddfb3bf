#include "harness/systems/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Scaled(double value, const char* unit) { return fmt::format("{:.3g} {}", value, unit); }

bool SameLinks(const Fingerprint& a, const Fingerprint& b) {
  return a.transport == b.transport && a.link == b.link;
}

bool CanCompare(FingerprintScope scope, const Fingerprint& first, const Fingerprint& second) {
  switch (scope) {
    case FingerprintScope::kLink:
      return SameLinks(first, second);
    case FingerprintScope::kCollective:
      return SameLinks(first, second) && first.ranks == second.ranks &&
             first.ranks_per_node == second.ranks_per_node &&
             first.all_reduce == second.all_reduce && first.all_gather == second.all_gather;
    case FingerprintScope::kRank:
      break;
  }
  return first.device == second.device && first.ranks_per_node == second.ranks_per_node &&
         first.threads == second.threads;
}

bool Apart(double first, double second) {
  return first > 0 && second > 0 &&
         std::max(first, second) > kFingerprintsDifferBy * std::min(first, second);
}

bool IntervalsOverlap(const FingerprintValue& first, const FingerprintValue& second) {
  return first.low <= second.high && second.low <= first.high;
}

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.size() == 2) return fmt::format("ranks {} and {}", ranks[0], ranks[1]);
  return fmt::format("rank {}", ranks.front());
}

// "half", "0.31"; "twice", "1.9 times"
std::string Share(double ratio) {
  return ratio > 0.45 && ratio < 0.55 ? "half" : fmt::format("{:.2g} times that", ratio);
}

}  // namespace

std::span<const FingerprintQuantity> FingerprintQuantities() {
  using enum FingerprintScope;
  static const FingerprintQuantity kQuantities[] = {
      {"inter_node_bandwidth", "bandwidth between nodes", "Gbit/s", kLink, true},
      {"inter_node_start", "start-up of a message between nodes", "s", kLink, false},
      {"intra_node_bandwidth", "bandwidth within a node", "Gbit/s", kLink, true},
      {"intra_node_start", "start-up of a message within a node", "s", kLink, false},
      {"all_reduce_4194304_bytes", "all-reduce of 4 MiB", "s", kCollective, false},
      {"all_gather_4194304_bytes", "all-gather of 4 MiB", "s", kCollective, false},
      {"all_reduce_262144_bytes", "all-reduce of 256 KiB", "s", kCollective, false},
      {"all_gather_262144_bytes", "all-gather of 256 KiB", "s", kCollective, false},
      {"all_reduce_4096_bytes", "all-reduce of 4 KiB", "s", kCollective, false},
      {"all_gather_4096_bytes", "all-gather of 4 KiB", "s", kCollective, false},
      {"memory_read", "memory read", "GB/s", kRank, true},
      {"matrix_product", "matrix product", "Gflop/s", kRank, true},
      {"top_k", "top-k selection", "s", kRank, false}};
  return kQuantities;
}

const FingerprintValue* Find(const Fingerprint& fingerprint, const FingerprintQuantity& quantity) {
  const auto found = fingerprint.quantities.find(quantity.name);
  return found == fingerprint.quantities.end() ? nullptr : &found->second;
}

std::string CollectiveQuantity(const char* collective, std::size_t bytes) {
  return fmt::format("{}_{}_bytes", collective, bytes);
}

std::vector<FingerprintDifference> DifferencesOf(const Fingerprint& first,
                                                 const Fingerprint& second) {
  std::vector<FingerprintDifference> differences;
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    const FingerprintValue* a = Find(first, quantity);
    const FingerprintValue* b = Find(second, quantity);
    if (a == nullptr || b == nullptr || !CanCompare(quantity.scope, first, second)) continue;
    const bool apart = Apart(a->slowest(), b->slowest());
    if (Apart(a->value, b->value) && !IntervalsOverlap(*a, *b)) {
      differences.push_back({&quantity, a->value, b->value, {}});
    } else if (b->worst && apart && Apart(b->value, b->slowest())) {
      differences.push_back({&quantity, a->slowest(), b->slowest(), b->worst->ranks});
    } else if (a->worst && apart && Apart(a->value, a->slowest())) {
      differences.push_back({&quantity, a->slowest(), b->slowest(), {}});
    }
  }
  return differences;
}

std::string WhatIsNotCompared(const Fingerprint& first, const Fingerprint& second) {
  const json of_first = ToJson(first), of_second = ToJson(second);
  std::string text;
  for (const char* key : {"device", "transport", "link", "ranks", "ranks_per_node", "threads",
                          "all_reduce", "all_gather"}) {
    const json a = of_first.value(key, json()), b = of_second.value(key, json());
    if (a == b) continue;
    text += fmt::format("{}{} {} against {}", text.empty() ? "" : ", ", key, Shown(a), Shown(b));
  }
  if (text.empty()) return "";
  std::string what;
  const auto add = [&](FingerprintScope scope, const char* name) {
    if (!CanCompare(scope, first, second))
      what += fmt::format("{}{}", what.empty() ? "" : ", ", name);
  };
  add(FingerprintScope::kLink, "links");
  add(FingerprintScope::kCollective, "collectives");
  add(FingerprintScope::kRank, "memory, products and selections");
  return what.empty() ? "" : fmt::format("{} are not compared: {}", what, text);
}

std::string ValueText(const FingerprintQuantity& quantity, double value) {
  if (quantity.unit != std::string_view("s")) return Scaled(value, quantity.unit);
  if (value < 1e-3) return Scaled(1e6 * value, "us");
  return value < 1 ? Scaled(1e3 * value, "ms") : Scaled(value, "s");
}

std::string SentenceOf(const FingerprintDifference& difference, const std::string& first,
                       const std::string& second) {
  const FingerprintQuantity& quantity = *difference.quantity;
  const std::string where =
      difference.ranks.empty() ? "" : fmt::format(" ({})", RanksText(difference.ranks));
  const std::string values = fmt::format("({} against {})", ValueText(quantity, difference.second),
                                         ValueText(quantity, difference.first));
  if (quantity.more_is_better) {
    return fmt::format("{}'s {}{} is {} of {}'s {}", second, quantity.words, where,
                       Share(difference.second / difference.first), first, values);
  }
  return fmt::format("{}'s {}{} takes {:.2g} times as long as {}'s {}", second, quantity.words,
                     where, difference.second / difference.first, first, values);
}

std::vector<std::vector<RankPair>> PhasesOf(const Topology& topology) {
  std::vector<std::vector<RankPair>> phases(3);
  const int in_node = topology.ranks_per_node;
  for (int node = 0; node < topology.nodes(); ++node) {
    const int first = node * in_node;
    if (in_node > 1 && first + 1 < topology.ranks)
      phases[0].push_back({first, first + 1, LinkClass::kIntraNode});
    if (node + 1 < topology.nodes())
      phases[static_cast<std::size_t>(1 + node % 2)].push_back(
          {first, first + in_node, LinkClass::kInterNode});
  }
  std::erase_if(phases, [](const auto& phase) { return phase.empty(); });
  return phases;
}

}  // namespace sparfuse::harness
