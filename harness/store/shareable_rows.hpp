// Takes out of trials what pages, which others may see, do not show.
#pragma once

#include <filesystem>
#include <vector>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Texts of machines, launches and people lose what TextScrubber takes out: names of this machine,
// of who is at it, and those that the trials' private.json in `results` knows. Values that have
// none of it stay shared.
void MakeShareable(std::vector<TrialRow>& rows, const std::filesystem::path& results);

}  // namespace sparfuse::harness
