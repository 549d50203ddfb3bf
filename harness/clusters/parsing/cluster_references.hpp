// Reads the measured steps of a declared cluster's file.
#pragma once

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/parsing/cluster_file.hpp"
#include "harness/clusters/profile_folders.hpp"

namespace sparfuse::harness {

// The [[reference]] tables: their forward and backward become compute times of the cluster, their
// other parts its references. Published bars and rows are read from results/published.
void ReadReferences(const ClusterFile& file, const ProfileFolders& profiles,
                    DeclaredCluster& cluster);

}  // namespace sparfuse::harness
