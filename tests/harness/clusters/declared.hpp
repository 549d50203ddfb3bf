// Reads clusters that tests declare and whose cards are in the project's profiles.
#pragma once

#include <filesystem>
#include <string>

#include "harness/clusters/declared_cluster.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {

inline const std::filesystem::path kProfiles = testing::SourceDirectory() / "results/profiles";

inline DeclaredCluster Parse(const std::string& text) {
  return ParseDeclaredCluster(TomlFile::Parse(text, "c.toml"), kProfiles);
}

}  // namespace sparfuse::harness
