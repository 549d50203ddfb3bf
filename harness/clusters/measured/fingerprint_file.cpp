#include "harness/clusters/measured/fingerprint_file.hpp"

#include <fmt/format.h>

#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// From a folder of profiles.
constexpr std::string_view kSystems = "../systems";
constexpr std::string_view kEnd = ".fingerprint";

}  // namespace

fs::path FingerprintFile(const ProfileFolders& profiles, const std::string& name) {
  const std::string file = ProfileFile(kSystems, fmt::format("{}{}", name, kEnd)).string();
  return profiles.File(file);
}

std::vector<std::string> FingerprintNames(const ProfileFolders& profiles) {
  std::vector<std::string> names;
  for (const std::string& stem : profiles.Names(".json", kSystems)) {
    if (stem.ends_with(kEnd)) names.push_back(stem.substr(0, stem.size() - kEnd.size()));
  }
  return names;
}

bool IsFingerprint(const json& outcome) {
  return outcome.at("config").value("kind", "") == NameOf(TrialKind::kFingerprint);
}

json MeasuredOf(const ProfileFolders& profiles, const std::string& name) {
  json outcomes = json::array();
  for (const fs::path& file : {profiles.File(name + ".json"), FingerprintFile(profiles, name)}) {
    if (!SomethingIsAt(file)) continue;
    for (json& outcome : ReadProfiles(file)) outcomes.push_back(std::move(outcome));
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

}  // namespace sparfuse::harness
