#include "harness/systems/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Scaled(double value, const char* unit) { return fmt::format("{:.3g} {}", value, unit); }

// Null where it is not there.
const json& QuantityOf(const Fingerprint& fingerprint, const FingerprintQuantity& quantity) {
  static const json kNone;
  const auto quantities = fingerprint.find("quantities");
  if (quantities == fingerprint.end()) return kNone;
  const auto found = quantities->find(quantity.name);
  return found == quantities->end() ? kNone : *found;
}

bool SameKeys(const Fingerprint& first, const Fingerprint& second,
              std::initializer_list<const char*> keys) {
  return std::ranges::all_of(
      keys, [&](const char* key) { return first.value(key, json()) == second.value(key, json()); });
}

bool CanCompare(FingerprintScope scope, const Fingerprint& first, const Fingerprint& second) {
  switch (scope) {
    case FingerprintScope::kLink:
      return SameKeys(first, second, {"transport", "link"});
    case FingerprintScope::kCollective:
      return SameKeys(first, second,
                      {"transport", "link", "ranks", "ranks_per_node", "all_reduce", "all_gather"});
    case FingerprintScope::kRank:
      break;
  }
  return SameKeys(first, second, {"device", "ranks_per_node", "threads"});
}

bool Apart(double first, double second) {
  return first > 0 && second > 0 &&
         std::max(first, second) > kFingerprintsDifferBy * std::min(first, second);
}

bool IntervalsOverlap(const json& first, const json& second) {
  return first.at("low") <= second.at("high") && second.at("low") <= first.at("high");
}

// The slowest rank or pair; the mean where there is but one.
double WorstOf(const json& quantity) {
  return quantity.contains("worst") ? quantity.at("worst").at("value").get<double>()
                                    : quantity.at("value").get<double>();
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

std::string CollectiveQuantity(const char* collective, std::size_t bytes) {
  return fmt::format("{}_{}_bytes", collective, bytes);
}

double FingerprintDifference::times_as_slow() const {
  return quantity->more_is_better ? first / second : second / first;
}

std::vector<FingerprintDifference> DifferencesOf(const Fingerprint& first,
                                                 const Fingerprint& second) {
  std::vector<FingerprintDifference> differences;
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    const json& a = QuantityOf(first, quantity);
    const json& b = QuantityOf(second, quantity);
    if (a.is_null() || b.is_null() || !CanCompare(quantity.scope, first, second)) continue;
    const double of_a = a.at("value"), of_b = b.at("value");
    if (Apart(of_a, of_b) && !IntervalsOverlap(a, b)) {
      differences.push_back({&quantity, of_a, of_b, {}});
    } else if (b.contains("worst") && Apart(WorstOf(a), WorstOf(b)) && Apart(of_b, WorstOf(b))) {
      differences.push_back({&quantity, WorstOf(a), WorstOf(b), b.at("worst").at("ranks")});
    } else if (a.contains("worst") && Apart(WorstOf(a), WorstOf(b)) && Apart(of_a, WorstOf(a))) {
      differences.push_back({&quantity, WorstOf(a), WorstOf(b), {}});
    }
  }
  return differences;
}

std::string WhatIsNotCompared(const Fingerprint& first, const Fingerprint& second) {
  std::string text;
  for (const char* key : {"device", "transport", "link", "ranks", "ranks_per_node", "threads",
                          "all_reduce", "all_gather"}) {
    const json a = first.value(key, json()), b = second.value(key, json());
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

}  // namespace sparfuse::harness
