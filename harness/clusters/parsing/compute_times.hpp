// Reads what forward and backward take on a card of a declared cluster.
#pragma once

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/parsing/cluster_file.hpp"

namespace sparfuse::harness {

// A [[compute]] table.
void ReadCompute(const ClusterFile& file, const std::string& at, DeclaredCluster& cluster);

// Puts it before those that are there: what a file says itself counts before what it takes over.
void AddCompute(DeclaredCluster& cluster, ComputeTime time);

// What a step on one card leaves for forward and backward: a third and two, less the update.
void SplitStep(const ClusterFile& file, const DeclaredCluster& cluster, double step_seconds,
               ComputeTime& time);

}  // namespace sparfuse::harness
