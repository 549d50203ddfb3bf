// Finds the files of measured fingerprints, results/systems/NAME.fingerprint.json. They have the
// form of measured profiles: links and no workload's times.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/clusters/profile_folders.hpp"

namespace sparfuse::harness {

// Beside the profiles that have the file, or else beside the results folder's own. Throws
// Error{kConfig} for a name that is none.
std::filesystem::path FingerprintFile(const ProfileFolders& profiles, const std::string& name);
// Sorted.
std::vector<std::string> FingerprintNames(const ProfileFolders& profiles);

// Whether an outcome is of a fingerprint, and no profile trial's.
bool IsFingerprint(const nlohmann::json& outcome);

// What was measured of the cluster called `name`: the outcomes of results/profiles/NAME.json, then
// those of its fingerprint; empty where there is neither. Throws as ReadProfiles.
nlohmann::json MeasuredOf(const ProfileFolders& profiles, const std::string& name);

// What a cell of cluster `name` lacks where nothing was profiled of its workload, with `command`
// that measures it.
std::string WhatIsMissing(const ProfileFolders& profiles, const std::string& name,
                          const std::string& subject, const std::string& command);

}  // namespace sparfuse::harness
