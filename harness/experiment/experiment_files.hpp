// Finds the experiment files beneath a folder.
#pragma once

#include <filesystem>
#include <vector>

namespace sparfuse::harness {

// The .toml files beneath `folder`, sorted, fig3 before fig14; none where there is no such folder.
std::vector<std::filesystem::path> ExperimentFiles(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
