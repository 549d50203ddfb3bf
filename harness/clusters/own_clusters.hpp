// Names the clusters that stand for the machine at hand.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>

namespace sparfuse::harness {

// Clusters whose profile is measured here: all ranks on this machine, sharing its cores; and a
// machine like this one for every rank.
inline constexpr const char* kThisMachine = "this-machine";
inline constexpr const char* kOwnClusters[] = {kThisMachine, "machines-like-this"};
inline bool IsOwnCluster(const std::string& cluster) {
  return std::any_of(std::begin(kOwnClusters), std::end(kOwnClusters),
                     [&](const char* own) { return cluster == own; });
}

}  // namespace sparfuse::harness
