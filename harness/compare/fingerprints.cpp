#include "harness/compare/fingerprints.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <set>

#include "harness/systems/fingerprint.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The facts that identify the machine itself.
constexpr std::pair<const char*, const char*> kHardware[] = {
    {"system.gpus", "cards"}, {"system.cpu_model", "processor"}, {"system.network", "network"}};

std::optional<Fingerprint> FingerprintOfRow(const TrialRow& row) {
  const json stored = row.provenance.value("fingerprint", json());
  return stored.is_object() ? std::optional(FingerprintOf(stored, row.trial_id)) : std::nullopt;
}

std::vector<std::optional<Fingerprint>> FingerprintsOf(const std::vector<SystemSide>& sides) {
  std::vector<std::optional<Fingerprint>> fingerprints;
  for (const SystemSide& side : sides) fingerprints.push_back(FingerprintOf(side));
  return fingerprints;
}

// "3 of Intel Xeon, 8 cores, 32 GiB, network Ethernet 25 Gbit/s; 1 of ..." from the newest trial
// that lists its nodes. "" if all nodes of the side are alike.
std::string UnlikeNodes(const SystemSide& side) {
  for (const TrialRow& row : side.rows | std::views::reverse) {
    const json nodes = row.provenance.value("nodes", json::array());
    if (nodes.size() < 2) continue;
    std::vector<std::string> kinds;
    for (const json& node : nodes)
      kinds.push_back(fmt::format("{} of {}", node.value("count", 1), HardwareLine(node)));
    return fmt::format("{}", fmt::join(kinds, "; "));
  }
  return "";
}

std::string OrNone(const std::string& value) { return value.empty() ? "none" : value; }

}  // namespace

std::optional<Fingerprint> FingerprintOf(const SystemSide& side) {
  for (const TrialRow& row : side.rows | std::views::reverse) {
    if (auto fingerprint = FingerprintOfRow(row)) return fingerprint;
  }
  return std::nullopt;
}

std::vector<std::string> ChangedDuringRuns(const SystemSide& side) {
  std::vector<std::string> sentences;
  for (const TrialRow& row : side.rows) {
    const auto fingerprint = FingerprintOfRow(row);
    if (!fingerprint) continue;
    for (const std::string& sentence : fingerprint->changed) {
      if (std::ranges::find(sentences, sentence) == sentences.end()) sentences.push_back(sentence);
    }
  }
  return sentences;
}

std::vector<std::string> WhatDiffersInHardware(const std::vector<SystemSide>& sides,
                                               const std::vector<FactDifference>& differences) {
  std::vector<std::string> sentences;
  for (const SystemSide& side : sides) {
    if (const std::string unlike = UnlikeNodes(side); !unlike.empty())
      sentences.push_back(fmt::format("{} has different nodes: {}", side.name, unlike));
    for (const std::string& changed : ChangedDuringRuns(side))
      sentences.push_back(fmt::format("{} changed during a run: {}", side.name, changed));
  }
  for (const auto& [name, words] : kHardware) {
    const auto found = std::ranges::find(differences, name, &FactDifference::name);
    if (found == differences.end()) continue;
    for (std::size_t side = 1; side < sides.size(); ++side) {
      if (found->values[side] == found->values[0]) continue;
      sentences.push_back(fmt::format("{} of {}: {}; of {}: {}", words, sides[side].name,
                                      OrNone(found->values[side]), sides[0].name,
                                      OrNone(found->values[0])));
    }
  }
  const auto fingerprints = FingerprintsOf(sides);
  const bool any = std::ranges::any_of(fingerprints, [](const auto& each) { return !!each; });
  for (std::size_t side = 0; any && side < sides.size(); ++side) {
    if (!fingerprints[side]) {
      sentences.push_back(fmt::format(
          "{} has no fingerprint: `sparfuse run --fingerprint` takes it", sides[side].name));
    } else if (side > 0 && fingerprints[0]) {
      for (const auto& each : DifferencesOf(*fingerprints[0], *fingerprints[side]))
        sentences.push_back(SentenceOf(each, sides[0].name, sides[side].name));
      if (const std::string why = WhatIsNotCompared(*fingerprints[0], *fingerprints[side]);
          !why.empty())
        sentences.push_back(
            fmt::format("fingerprints of {} and {}: {}", sides[0].name, sides[side].name, why));
    }
  }
  return sentences;
}

std::vector<FactDifference> FingerprintFacts(const std::vector<SystemSide>& sides) {
  const auto fingerprints = FingerprintsOf(sides);
  if (!fingerprints.front()) return {};
  std::set<const FingerprintQuantity*> differ;
  for (const auto& other : fingerprints) {
    if (!other) continue;
    for (const auto& each : DifferencesOf(*fingerprints.front(), *other))
      differ.insert(each.quantity);
  }
  std::vector<FactDifference> facts;
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    if (!differ.contains(&quantity)) continue;
    FactDifference fact{fmt::format("fingerprint: {}", quantity.words), {}, false};
    for (const auto& each : fingerprints) {
      std::string& text = fact.values.emplace_back();
      const FingerprintValue* value = each ? Find(*each, quantity) : nullptr;
      if (value == nullptr) continue;
      text = ValueText(quantity, value->value);
      if (value->worst) text += fmt::format(", slowest {}", ValueText(quantity, value->slowest()));
    }
    facts.push_back(std::move(fact));
  }
  return facts;
}

}  // namespace sparfuse::harness
