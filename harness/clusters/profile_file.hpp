// Reads and writes files of measurements that do not belong to trials: profiles in
// results/profiles/NAME.json, and fingerprints in results/systems/NAME.fingerprint.json. A
// fingerprint has links, and no times of a workload.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/clusters/profile_folders.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

inline constexpr const char* kByHand = "declared (by hand)";

// FOLDER/NAME.json. Throws Error{kConfig} for a name that is none: letters, digits, '.', '_', '-'.
std::filesystem::path ProfileFile(const std::filesystem::path& folder, const std::string& name);
// The file of a fingerprint. It lies next to the profiles that have the file, or else next to the
// results folder's own. Throws as above.
std::filesystem::path FingerprintFile(const ProfileFolders& profiles, const std::string& name);
// Sorted.
std::vector<std::string> FingerprintNames(const ProfileFolders& profiles);

// The outcomes of a file. The kind of each is "measured", "imported", "declared", or kByHand if the
// file says nothing that can be trusted. A measured outcome has a "digest", the SHA-256 of its
// canonical form with the kind. It guards against mistakes, not against deceit: anybody can compute
// one. Throws Error{kData} naming the file, also if a measured outcome was changed.
ProfileOutcomes ReadProfiles(const std::filesystem::path& file);
// Parses the text of a file of profiles; errors call it `name`.
ProfileOutcomes ParseProfiles(std::string_view text, const std::string& name);
// Writes durably, one outcome a line, numbers with six digits, measured outcomes with their digest.
void WriteProfiles(const std::filesystem::path& file, const ProfileOutcomes& outcomes);

// The kind that all have, or "measured, in part declared (by hand)".
std::string KindOfAll(const ProfileOutcomes& outcomes);

// The measurements of the cluster called `name`: the outcomes of results/profiles/NAME.json, then
// the outcomes of its fingerprint. Empty if neither exists. Throws as ReadProfiles.
ProfileOutcomes MeasuredOf(const ProfileFolders& profiles, const std::string& name);
// A sentence that a cell of cluster `name` lacks a profile of its workload, with the `command` that
// measures it.
std::string WhatIsMissing(const ProfileFolders& profiles, const std::string& name,
                          const std::string& subject, const std::string& command);

// Whether the outcome has the workload, options, batch and threads of a config.
bool IsOfSubject(const ProfileOutcome& outcome, const CellConfig& config);
// The outcomes for which IsOfSubject is true, then any fingerprints, whose links serve every
// workload.
ProfileOutcomes ProfilesOf(const ProfileOutcomes& outcomes, const CellConfig& config);

// "text-gpt with batch 8 and 1 thread(s) a rank".
std::string SubjectName(const CellConfig& config);

// The config on the device and with the precision that the outcomes were measured with, which no
// cell that is modelled with them has.
CellConfig MeasuredLike(const ProfileOutcomes& outcomes, CellConfig config);

// The command that measures the times that `config` needs into the file called `name`. If `name` is
// "", it measures them as trials of the store alone.
std::string MeasureCommand(const CellConfig& config, const std::string& name);

// A profile trial in the form of a file of profiles: its profile, and the place, time and software
// of the measurement, without names of hosts. `directory` is the trial's.
ProfileOutcome ProfileOfTrial(const std::filesystem::path& directory);

// `system`, here and below: a description of a machine, with any keys.
// Whether an outcome of a file was measured on this machine, with this kernel or another.
bool IsOfMachine(const ProfileOutcome& outcome, const nlohmann::json& system);
// Throws Error{kConfig} naming the file if its outcomes come from another machine than `system`.
void CheckSameMachine(const std::filesystem::path& file, const ProfileOutcomes& outcomes,
                      const nlohmann::json& system);

// The outcome with config's workload, batch, threads, ranks and link; null if there is none. Throws
// Error{kConfig} naming the file if it was measured in another way (passes, sparsifiers).
const ProfileOutcome* FindMeasured(const std::filesystem::path& file,
                                   const ProfileOutcomes& outcomes, const CellConfig& config);

// `measured` takes the place of the outcome of the same workload, batch, threads, ranks and link,
// or comes last.
void PutProfile(ProfileOutcomes& outcomes, const ProfileOutcome& measured);

}  // namespace sparfuse::harness
