// Reads and writes the files of results/profiles: measurements of a machine, kept apart from the
// trials.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// FOLDER/NAME.json. Throws Error{kConfig} for a name that is none: letters, digits, '.', '_', '-'.
std::filesystem::path ProfileFile(const std::filesystem::path& folder, const std::string& name);

// The outcomes of a file: an array, of one where the file holds a single outcome; KindOf tells what
// each is. Throws Error{kData} naming the file, also where what was measured has been changed.
nlohmann::json ReadProfiles(const std::filesystem::path& file);
// Of what such a file holds; errors call it `name`.
nlohmann::json ProfilesFrom(nlohmann::json content, const std::string& name);

// Gives the outcomes of a file from before there were digests theirs: the caller vouches that they
// are as they were measured. Returns how many; with none the file stays as it is. Throws as
// ReadProfiles, and for what sparfuse profile did not write.
int VouchForProfiles(const std::filesystem::path& file);

// Whether the outcome's workload, its options, batch and threads are those of a config as JSON.
bool IsOfSubject(const nlohmann::json& outcome, const nlohmann::json& config);
// Those outcomes of which this is so, then, where there are any, those of fingerprints, whose links
// are every workload's.
nlohmann::json ProfilesOf(const nlohmann::json& outcomes, const CellConfig& config);

// "text-gpt with batch 8 and 1 thread(s) a rank".
std::string SubjectName(const CellConfig& config);

// The config on the device and with the precision that the outcomes were measured with, which no
// cell that is modelled with them has.
CellConfig MeasuredLike(const nlohmann::json& outcomes, CellConfig config);

// The command that measures what `config` needs into the file called `name`, or, where that is "",
// as trials of the store alone.
std::string MeasureCommand(const CellConfig& config, const std::string& name);

// A profile trial as such a file has it: its profile and where, when and with what it was measured,
// without the names of hosts. `directory` is the trial's.
nlohmann::json ProfileOutcome(const std::filesystem::path& directory);

// Whether an outcome of a file was measured on this machine, whatever its kernel is now.
bool IsOfMachine(const nlohmann::json& outcome, const nlohmann::json& system);

// Throws Error{kConfig} naming the file where its outcomes are of another machine than `system`.
void CheckSameMachine(const std::filesystem::path& file, const nlohmann::json& outcomes,
                      const nlohmann::json& system);

// Of the outcomes of a file, the one with config's workload, batch, threads, ranks and link; null
// if there is none. Throws Error{kConfig} naming the file where it was measured in another way
// (passes, sparsifiers).
const nlohmann::json* FindMeasured(const std::filesystem::path& file,
                                   const nlohmann::json& outcomes, const CellConfig& config);

// `measured` takes the place of the outcome of the same workload, batch, threads, ranks and link,
// or comes last.
void PutProfile(nlohmann::json& outcomes, const nlohmann::json& measured);

// Durably, one outcome a line, numbers to six digits; what is measured with its digest.
void WriteProfiles(const std::filesystem::path& file, const nlohmann::json& outcomes);

}  // namespace sparfuse::harness
