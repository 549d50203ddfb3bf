// Reads and writes files of measurements that are kept apart from the trials: profiles in
// results/profiles/NAME.json, and fingerprints, which have links and no workload's times, in
// results/systems/NAME.fingerprint.json.
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
// Of a fingerprint: beside the profiles that have the file, or else beside the results folder's
// own. Throws likewise.
std::filesystem::path FingerprintFile(const ProfileFolders& profiles, const std::string& name);
// Sorted.
std::vector<std::string> FingerprintNames(const ProfileFolders& profiles);

// The outcomes of a file. Each one's kind is "measured", "imported", "declared", or kByHand where
// the file says nothing that can be believed: what is measured has a "digest" there, the SHA-256 of
// its canonical form with the kind. It guards against mistakes: whoever wants to deceive can
// compute one. Throws Error{kData} naming the file, also where what was measured has been changed.
ProfileOutcomes ReadProfiles(const std::filesystem::path& file);
// Of the text of such a file; errors call it `name`.
ProfileOutcomes ParseProfiles(std::string_view text, const std::string& name);
// Durably, one outcome a line, numbers to six digits; what is measured with its digest.
void WriteProfiles(const std::filesystem::path& file, const ProfileOutcomes& outcomes);

// The kind that all have, or "measured, in part declared (by hand)".
std::string KindOfAll(const ProfileOutcomes& outcomes);

// What was measured of the cluster called `name`: the outcomes of results/profiles/NAME.json, then
// those of its fingerprint; empty where there is neither. Throws as ReadProfiles.
ProfileOutcomes MeasuredOf(const ProfileFolders& profiles, const std::string& name);
// What a cell of cluster `name` lacks where nothing was profiled of its workload, with `command`
// that measures it.
std::string WhatIsMissing(const ProfileFolders& profiles, const std::string& name,
                          const std::string& subject, const std::string& command);

// Whether the outcome's workload, its options, batch and threads are those of a config.
bool IsOfSubject(const ProfileOutcome& outcome, const CellConfig& config);
// Those outcomes of which this is so, then, where there are any, those of fingerprints, whose links
// are every workload's.
ProfileOutcomes ProfilesOf(const ProfileOutcomes& outcomes, const CellConfig& config);

// "text-gpt with batch 8 and 1 thread(s) a rank".
std::string SubjectName(const CellConfig& config);

// The config on the device and with the precision that the outcomes were measured with, which no
// cell that is modelled with them has.
CellConfig MeasuredLike(const ProfileOutcomes& outcomes, CellConfig config);

// The command that measures what `config` needs into the file called `name`, or, where that is "",
// as trials of the store alone.
std::string MeasureCommand(const CellConfig& config, const std::string& name);

// A profile trial as such a file has it: its profile and where, when and with what it was measured,
// without the names of hosts. `directory` is the trial's.
ProfileOutcome ProfileOfTrial(const std::filesystem::path& directory);

// `system`, here and below: a description of a machine, of any keys.
// Whether an outcome of a file was measured on this machine, whatever its kernel is now.
bool IsOfMachine(const ProfileOutcome& outcome, const nlohmann::json& system);
// Throws Error{kConfig} naming the file where its outcomes are of another machine than `system`.
void CheckSameMachine(const std::filesystem::path& file, const ProfileOutcomes& outcomes,
                      const nlohmann::json& system);

// Of the outcomes of a file, the one with config's workload, batch, threads, ranks and link; null
// if there is none. Throws Error{kConfig} naming the file where it was measured in another way
// (passes, sparsifiers).
const ProfileOutcome* FindMeasured(const std::filesystem::path& file,
                                   const ProfileOutcomes& outcomes, const CellConfig& config);

// `measured` takes the place of the outcome of the same workload, batch, threads, ranks and link,
// or comes last.
void PutProfile(ProfileOutcomes& outcomes, const ProfileOutcome& measured);

}  // namespace sparfuse::harness
