// Edits the text of declared clusters' files: makes one from a preset, a whole cluster of
// data-sheet values from results/profiles/presets whose comments name the first measurements; and
// removes an input.
#pragma once

#include <filesystem>
#include <string>

#include "harness/clusters/profile_folders.hpp"

namespace sparfuse::harness {

struct NewCluster {
  std::string name, preset;
  int nodes = 0;           // 0: the number of the preset
  int ranks_per_node = 0;  // 0: all cards of a node
};

// The file of the preset with the wanted nodes and ranks. Of a node's network cards it keeps the
// share of its ranks. The text is read as a cluster before it is returned. Throws Error{kConfig}
// for an unknown preset, and for more ranks a node than the node has cards.
std::string ClusterFromPreset(const ProfileFolders& profiles, const NewCluster& wanted);

// The path for the file of a new cluster, in the results folder's own clusters. Throws
// Error{kConfig} for a name that is not valid (as ProfileFile), and for the name of a measured or
// declared cluster.
std::filesystem::path PlaceOfNewCluster(const ProfileFolders& profiles, const std::string& name);

// Turns the lines of `[input] NAME` in `text` into comments: one line, several, dotted keys, or a
// table of its own. Keys within an inline table of all inputs stay.
std::string WithoutInput(const std::string& text, const std::string& name);

}  // namespace sparfuse::harness
