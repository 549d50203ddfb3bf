// Declares the verbs that make, fill and list declared clusters.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/clusters/cluster_presets.hpp"

namespace sparfuse::harness {

int CalibrateVerb(Program& program, const std::string& cluster);
// Writes results/profiles/NAME.toml; nothing is overwritten.
int ClusterNewVerb(Program& program, const NewCluster& wanted);
// As typed.
struct ClusterImport {
  std::string cluster, from;  // "nccl-tests", "osu" or "fingerprint"
  std::vector<std::string> logs;
  int ranks = 0, nodes = 0;  // 0: as the logs say
  std::string operation;     // of logs that do not say; or ""
  bool print = false;        // write nothing
};
// Takes links that others measured into results/profiles/NAME.toml: curves are written, apart from
// what is there; lines of [input] are printed, since those there are their owner's.
int ClusterImportVerb(Program& program, const ClusterImport& asked);
// Presets, stacks and clusters.
int ClusterListVerb(Program& program);

}  // namespace sparfuse::harness
