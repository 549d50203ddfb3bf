#include "harness/clusters/measured/profile_kind.hpp"

#include <fmt/format.h>

#include <set>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kKind = "kind";
constexpr const char* kDigest = "digest";

std::string DigestOf(json outcome) {
  outcome.erase(kDigest);
  return ContentHash(outcome);
}

// "digits-resnet with batch 32, 2 rank(s)"
std::string WhichOf(const json& outcome) {
  const json& config = outcome.at("config");
  return fmt::format("the outcome of {} with batch {}, {} rank(s)", Shown(config["workload"]),
                     config["batch_per_worker"].dump(), config["workers"].dump());
}

bool IsOneOf(const json& value, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return value == name; });
}

}  // namespace

std::string KindOf(const json& outcome) { return outcome.value(kKind, kMeasured); }

std::string KindOfAll(const json& outcomes) {
  std::set<std::string> others;
  bool measured = false;
  for (const json& outcome : outcomes) {
    const std::string kind = KindOf(outcome);
    if (kind == kMeasured) {
      measured = true;
    } else {
      others.insert(kind);
    }
  }
  std::string text;
  for (const std::string& kind : others) text += (text.empty() ? "" : " and ") + kind;
  if (text.empty()) return kMeasured;
  return measured ? "measured, in part " + text : text;
}

json WithKind(json outcome) {
  if (KindOf(outcome) == kByHand) {
    outcome.erase(kKind);
  } else if (!outcome.contains(kKind)) {
    outcome[kKind] = kMeasured;
    outcome[kDigest] = DigestOf(outcome);
  }
  return outcome;
}

json CheckedKind(json outcome, const std::string& name) {
  if (!outcome.contains(kKind) && !outcome.contains(kDigest)) {
    outcome[kKind] = kByHand;
    return outcome;
  }
  const json kind = outcome.value(kKind, json());
  if (!outcome.contains(kDigest) && IsOneOf(kind, {"declared", "imported"})) return outcome;
  if (!outcome.contains(kDigest) && kind == kMeasured) {
    outcome[kKind] = kByHand;
    return outcome;
  }
  if (kind != kMeasured) {
    SPARFUSE_THROW(
        kData, fmt::format("{}: {}: kind = {}{}: expected \"measured\" with the \"digest\" that "
                           "sparfuse profile writes, or \"imported\" or \"declared\" without one",
                           name, WhichOf(outcome), Shown(kind),
                           outcome.contains(kDigest) ? " with a digest" : ""));
  }
  if (outcome[kDigest] != DigestOf(outcome)) {
    SPARFUSE_THROW(
        kData,
        fmt::format("{}: {} was changed after it was measured: its content does not have its "
                    "\"digest\"; restore it, or delete it and measure it again, or write \"kind\": "
                    "\"declared\" and no \"digest\" where its numbers are yours",
                    name, WhichOf(outcome)));
  }
  outcome.erase(kKind);
  outcome.erase(kDigest);
  return outcome;
}

json Vouched(json outcome, const std::string& name) {
  if (outcome.contains(kKind) || outcome.contains(kDigest))
    return CheckedKind(std::move(outcome), name);
  for (const char* key : {"status", "machine", "n", "sampling", "system", "software", "source",
                          "revisions", "started_utc", "seconds"}) {
    if (outcome.contains(key)) continue;
    SPARFUSE_THROW(kData,
                   fmt::format("{}: {} lacks \"{}\", which sparfuse profile writes: it was not "
                               "measured by it; expected \"kind\": \"declared\" or \"imported\"",
                               name, WhichOf(outcome), key));
  }
  return outcome;
}

}  // namespace sparfuse::harness
