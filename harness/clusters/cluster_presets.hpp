// Makes the file of a declared cluster from a preset: a whole cluster of data-sheet values, from
// results/profiles/presets. The comments of a preset name the first measurements.
#pragma once

#include <filesystem>
#include <string>

#include "harness/clusters/profile_folders.hpp"

namespace sparfuse::harness {

struct NewCluster {
  std::string name, preset;
  int nodes = 0;           // 0: as many as the preset has
  int ranks_per_node = 0;  // 0: all cards of a node
};

// The file of the preset with the nodes and ranks wanted; of a node's network cards as many as its
// ranks have a share in. The text is read as a cluster before it is returned. Throws Error{kConfig}
// for an unknown preset, and for more ranks a node than it has cards.
std::string ClusterFromPreset(const ProfileFolders& profiles, const NewCluster& wanted);

// Where the file of a new cluster goes: among the results folder's own. Throws Error{kConfig} for a
// name that is none (as ProfileFile), or that a cluster has, measured or declared.
std::filesystem::path PlaceOfNewCluster(const ProfileFolders& profiles, const std::string& name);

}  // namespace sparfuse::harness
