// Passes on what ranks wrote on a node through a launcher's output, among whose lines others may
// stand, and finds out whether all of it came.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparfuse::harness {

// A script: prints the files of the folders 0, 1, ... in `place`, but for config.json, with their
// hashes.
std::string SendingResults(const std::string& place);

// Takes them out of what the script printed, by way of the folder `between`, into the directories
// of trials 0, 1, ... Returns what is missing or damaged, of which nothing is taken; or "". Throws
// Error{kData} where this machine cannot write.
std::string TakeResults(const std::filesystem::path& printed, const std::filesystem::path& between,
                        const std::vector<std::filesystem::path>& trials);

}  // namespace sparfuse::harness
