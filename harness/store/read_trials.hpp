// Reads trial.json files, many at once, and checks what readers rely on.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "harness/store/trial_files.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Begins the annotation of a trial whose numbers its series contradict: nobody called it bad, but it
// counts no more than if somebody had. It is kept in the index, so that series are read once.
inline constexpr std::string_view kNotOfItsSeries = "its numbers are not those of its series: ";

struct ReadTrial {
  TrialRow row;         // where `problem` is "" and `older` false
  std::string problem;  // why it is left out: a sentence that begins with the file
  bool older = false;   // of an older schema: left out, and counted by the caller
};

// Reads `files` on all cores and hands each to `use`, on the caller's thread and in their order.
void ReadTrialFiles(const std::filesystem::path& trials, std::span<const TrialFile> files,
                    const std::function<void(const TrialFile&, ReadTrial)>& use);

}  // namespace sparfuse::harness
