// Reads trial.json files, many at once, and checks the facts on which readers rely.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "harness/store/trial_files.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

struct ReadTrial {
  TrialRow row;         // valid if `problem` is "" and `older` false
  std::string problem;  // why it is left out: a sentence that begins with the file
  bool older = false;   // of an older schema: left out, and counted by the caller
};

// Reads `files` on all cores and hands each to `use`, on the caller's thread and in their order.
void ReadTrialFiles(const std::filesystem::path& trials, std::span<const TrialFile> files,
                    const std::function<void(const TrialFile&, ReadTrial)>& use);

}  // namespace sparfuse::harness
