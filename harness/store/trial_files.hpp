// Finds the trials below a folder, among any other files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparfuse::harness {

// Shows whether a file is still the one that was read.
struct FileStamp {
  std::int64_t mtime_ns = 0, size = 0, inode = 0;
  bool operator==(const FileStamp&) const = default;
};

// The stamp of a regular file, links followed; for anything else one with inode 0.
FileStamp StampOf(const std::filesystem::path& file);

struct TrialFile {
  std::string place;  // of its directory, relative to the folder; trial_id must equal it
  FileStamp stamp;    // inode 0: trial.json is not a regular file
};

struct TrialListing {
  std::vector<TrialFile> finished;      // directories with a trial.json, by place
  std::vector<std::string> unfinished;  // places without one that have a config.json or are empty
  std::vector<std::string> unknown;     // places that lead to no trial, the topmost of each
  std::vector<std::string> problems;    // folders that could not be read, and why; sentences
};

// Looks into a folder that a link leads to as well, once: real folders first, then links in the
// order of their names, so that a loop of links ends. Folders that no experiment could be called
// like are unknown and not looked into.
TrialListing ListTrials(const std::filesystem::path& trials);

}  // namespace sparfuse::harness
