// Reads what a declared cluster's file says of measured times: of forward and backward on a card,
// and of steps.
#pragma once

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/parsing/cluster_file.hpp"
#include "harness/clusters/profile_folders.hpp"

namespace sparfuse::harness {

// A [[compute]] table.
void ReadCompute(const ClusterFile& file, const std::string& at, DeclaredCluster& cluster);

// The [[reference]] tables: their forward and backward become compute times of the cluster, their
// other parts its references. Published bars and rows are read from results/published.
void ReadReferences(const ClusterFile& file, const ProfileFolders& profiles,
                    DeclaredCluster& cluster);

}  // namespace sparfuse::harness
