#include "harness/clusters/profile_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/base/error.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/record.hpp"
#include "harness/systems/system_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Relative to a folder of profiles.
constexpr std::string_view kSystems = "../systems";
constexpr std::string_view kFingerprintEnd = ".fingerprint";

constexpr const char* kKind = "kind";
constexpr const char* kDigest = "digest";

bool SameSubject(const CellConfig& a, const CellConfig& b) {
  return a.workload == b.workload && a.batch_per_worker == b.batch_per_worker &&
         a.threads_per_worker == b.threads_per_worker &&
         OptionsToJson(a.workload_options) == OptionsToJson(b.workload_options);
}

bool SameMeasurement(const CellConfig& a, const CellConfig& b) {
  return SameSubject(a, b) && a.workers == b.workers && a.link == b.link &&
         (!a.link || !a.link->has_within() || a.ranks_per_node == b.ranks_per_node);
}

// The facts that make two machines different. The operating system's kernel is not one of them.
json MachineOf(json system) {
  if (system.is_null()) return json::object();
  system.erase("kernel");
  return system;
}

// Rounds to six digits, as no measured time has more.
json Rounded(const json& value) {
  if (value.is_number_float()) {
    return std::strtod(fmt::format("{:.6g}", value.get<double>()).c_str(), nullptr);
  }
  if (!value.is_structured()) return value;
  json rounded = value;
  for (json& element : rounded) element = Rounded(element);
  return rounded;
}

std::string DigestOf(json outcome) {
  outcome.erase(kDigest);
  return ContentHash(outcome);
}

// The form of an outcome in a file.
json Sealed(const ProfileOutcome& outcome) {
  json sealed = Rounded(ToJson(outcome));
  if (outcome.kind == kByHand) {
    sealed.erase(kKind);
  } else if (outcome.kind == kMeasured) {
    sealed[kKind] = kMeasured;
    sealed[kDigest] = DigestOf(sealed);
  }
  return sealed;
}

// Names an outcome: "the outcome of digits-resnet with batch 32, 2 rank(s)".
std::string WhichOf(const json& outcome) {
  const json& config = outcome.at("config");
  const auto shown = [&](const char* key) {
    return Shown(config.is_object() ? config.value(key, json()) : json());
  };
  return fmt::format("the outcome of {} with batch {}, {} rank(s)", shown("workload"),
                     shown("batch_per_worker"), shown("workers"));
}

// Removes kind and digest from an outcome of a file, and returns the kind of its numbers. Throws
// Error{kData} if the content does not match its digest, or the kind is unknown.
std::string TakeKind(json& outcome, const std::string& name) {
  const json kind = outcome.value(kKind, json());
  const bool sealed = outcome.contains(kDigest);
  const bool other = kind == "declared" || kind == "imported";
  if (!sealed && (kind.is_null() || kind == kMeasured || other)) {
    outcome.erase(kKind);
    return other ? kind.get<std::string>() : kByHand;
  }
  if (kind != kMeasured) {
    SPARFUSE_THROW(
        kData, fmt::format("{}: {}: kind = {}{}: expected \"measured\" with the \"digest\" that "
                           "sparfuse profile writes, or \"imported\" or \"declared\" without one",
                           name, WhichOf(outcome), Shown(kind), sealed ? " with a digest" : ""));
  }
  if (outcome[kDigest] != DigestOf(outcome)) {
    SPARFUSE_THROW(
        kData,
        fmt::format("{}: {} was changed after it was measured: its content does not have its "
                    "\"digest\"; restore it, or delete it and measure it again, or write \"kind\": "
                    "\"declared\" and no \"digest\" if its numbers are yours",
                    name, WhichOf(outcome)));
  }
  outcome.erase(kKind);
  outcome.erase(kDigest);
  return kMeasured;
}

// Adds defaults that a file made by hand may omit.
void CompleteConfig(json& config) {
  if (!config.is_object()) return;
  CellConfig initial;
  initial.kind = config.value("kind", json()) == NameOf(TrialKind::kFingerprint)
                     ? TrialKind::kFingerprint
                     : TrialKind::kProfile;
  json complete = ToJson(initial);
  complete.erase("kind");
  complete.update(config);
  config = std::move(complete);
}

}  // namespace

fs::path ProfileFile(const fs::path& folder, const std::string& name) {
  return NamedFile(folder, "profile", name, ".json");
}

fs::path FingerprintFile(const ProfileFolders& profiles, const std::string& name) {
  return profiles.File(ProfileFile(kSystems, fmt::format("{}{}", name, kFingerprintEnd)).string());
}

std::vector<std::string> FingerprintNames(const ProfileFolders& profiles) {
  std::vector<std::string> names;
  for (const std::string& stem : profiles.Names(".json", kSystems)) {
    if (stem.ends_with(kFingerprintEnd))
      names.push_back(stem.substr(0, stem.size() - kFingerprintEnd.size()));
  }
  return names;
}

ProfileOutcomes ReadProfiles(const fs::path& file) {
  return ParseProfiles(ReadFile(file), file.string());
}

ProfileOutcomes ParseProfiles(std::string_view text, const std::string& name) {
  json list = ParseJson(text, name);
  ProfileOutcomes outcomes;
  const auto expected = [&] {
    SPARFUSE_THROW(kData, fmt::format("{}: expected an array of outcomes of profile trials, each "
                                      "with \"config\" and \"profile\"",
                                      name));
  };
  if (!list.is_array()) expected();
  for (json& outcome : list) {
    if (!outcome.is_object() || !outcome.contains("config") || !outcome.contains("profile"))
      expected();
    const std::string kind = TakeKind(outcome, name);
    CompleteConfig(outcome.at("config"));
    outcomes.push_back(ProfileOutcomeOf(outcome, fmt::format("{}: {}", name, outcomes.size())));
    outcomes.back().kind = kind;
  }
  return outcomes;
}

void WriteProfiles(const fs::path& file, const ProfileOutcomes& outcomes) {
  std::string text = "[";
  for (const ProfileOutcome& outcome : outcomes) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += Sealed(outcome).dump();
  }
  MakeDirectories(file.parent_path());
  WriteFileDurably(file, text + "\n]\n");
}

std::string KindOfAll(const ProfileOutcomes& outcomes) {
  std::set<std::string> others;
  bool measured = false;
  for (const ProfileOutcome& outcome : outcomes) {
    if (outcome.kind == kMeasured) {
      measured = true;
    } else {
      others.insert(outcome.kind);
    }
  }
  if (others.empty()) return kMeasured;
  const std::string text = fmt::format("{}", fmt::join(others, " and "));
  return measured ? "measured, in part " + text : text;
}

ProfileOutcomes MeasuredOf(const ProfileFolders& profiles, const std::string& name) {
  ProfileOutcomes outcomes;
  for (const fs::path& file : {profiles.File(name + ".json"), FingerprintFile(profiles, name)}) {
    if (!SomethingIsAt(file)) continue;
    for (ProfileOutcome& outcome : ReadProfiles(file)) outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::string WhatIsMissing(const ProfileFolders& profiles, const std::string& name,
                          const std::string& subject, const std::string& command) {
  const fs::path file = profiles.File(name + ".json");
  if (SomethingIsAt(file))
    return fmt::format("{} has no profile of {}; measure it with `{}`", file.string(), subject,
                       command);
  return fmt::format("{} has links and no times of {}; measure these with `{}`",
                     FingerprintFile(profiles, name).string(), subject, command);
}

bool IsOfSubject(const ProfileOutcome& outcome, const CellConfig& config) {
  return SameSubject(outcome.config, config);
}

ProfileOutcomes ProfilesOf(const ProfileOutcomes& outcomes, const CellConfig& config) {
  ProfileOutcomes found;
  for (const ProfileOutcome& outcome : outcomes) {
    if (IsOfSubject(outcome, config)) found.push_back(outcome);
  }
  if (found.empty()) return found;
  for (const ProfileOutcome& outcome : outcomes) {
    if (outcome.is_fingerprint()) found.push_back(outcome);
  }
  return found;
}

std::string SubjectName(const CellConfig& config) {
  std::string name = fmt::format("{} with batch {} and {} thread(s) a rank", config.workload,
                                 config.batch_per_worker, config.threads_per_worker);
  if (config.device != Place::kCpu) name += ", " + NameOf(config.device);
  if (config.precision != Precision::kFp32) name += ", " + NameOf(config.precision);
  return name;
}

CellConfig MeasuredLike(const ProfileOutcomes& outcomes, CellConfig config) {
  if (outcomes.empty()) return config;
  const CellConfig& measured = outcomes.front().config;
  if (measured.device == Place::kCuda) config.device = Place::kCuda;
  if (measured.precision != Precision::kFp32) config.precision = measured.precision;
  return config;
}

std::string MeasureCommand(const CellConfig& config, const std::string& name) {
  std::string command = fmt::format("sparfuse profile {} --batch {} --threads {}", config.workload,
                                    config.batch_per_worker, config.threads_per_worker);
  if (config.link) {
    command += fmt::format(" --link {}:{}", config.link->gbps, config.link->alpha_us);
    if (config.link->has_within()) {
      command += fmt::format(":{}:{} --ranks-per-node {}", config.link->intra_node_gbps,
                             config.link->intra_node_us, config.ranks_per_node);
    }
  }
  if (config.device != Place::kCpu) command += " --device " + NameOf(config.device);
  if (config.precision != Precision::kFp32) command += " --precision " + NameOf(config.precision);
  return name.empty() ? command : command + " --name " + name;
}

ProfileOutcome ProfileOfTrial(const fs::path& directory) {
  const json measured = ReadJsonFile(directory / "outcome.json");
  const json trial = ReadJsonFile(directory / "trial.json");
  json outcome;
  for (const char* key : {"status", "machine", "n", "profile", "sampling"})
    outcome[key] = measured.at(key);
  outcome["machine"].erase("placement");
  for (const char* key :
       {"config", "system", "software", "source", "revisions", "started_utc", "seconds"}) {
    outcome[key] = trial.at(key);
  }
  return ProfileOutcomeOf(outcome, directory.string());
}

bool IsOfMachine(const ProfileOutcome& outcome, const json& system) {
  return !outcome.system.is_null() && system.is_object() &&
         WhatDiffers(MachineOf(outcome.system), MachineOf(system)).empty();
}

void CheckSameMachine(const fs::path& file, const ProfileOutcomes& outcomes, const json& system) {
  for (const ProfileOutcome& outcome : outcomes) {
    const std::string differs = WhatDiffers(MachineOf(outcome.system), MachineOf(system));
    if (differs.empty()) continue;
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} was measured on another machine ({}): expected another name",
                               file.string(), differs));
  }
}

const ProfileOutcome* FindMeasured(const fs::path& file, const ProfileOutcomes& outcomes,
                                   const CellConfig& config) {
  const auto found = std::ranges::find_if(outcomes, [&](const ProfileOutcome& outcome) {
    return SameMeasurement(outcome.config, config);
  });
  if (found == outcomes.end()) return nullptr;
  const std::string differs = WhatDiffers(ToJson(found->config), Rounded(ToJson(config)));
  if (differs.empty()) return &*found;
  SPARFUSE_THROW(
      kConfig,
      fmt::format(
          "{} has {}, {} rank(s), link {}, measured in another way ({}): expected the same, "
          "another --name, or --fresh to measure again and replace it",
          file.string(), SubjectName(config), config.workers,
          config.link ? ToJson(config.link).dump() : "its own", differs));
}

void PutProfile(ProfileOutcomes& outcomes, const ProfileOutcome& measured) {
  for (ProfileOutcome& there : outcomes) {
    if (!SameMeasurement(there.config, measured.config)) continue;
    there = measured;
    return;
  }
  outcomes.push_back(measured);
}

}  // namespace sparfuse::harness
