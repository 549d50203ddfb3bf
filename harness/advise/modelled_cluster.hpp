// Models cells on one cluster in several ways: with its inputs as stated, with draws of its
// uncertain inputs, with one input at an end of its range, and with faster or slower links.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// The trial of a cell's block 0.
inline TrialConfig FirstTrial(const CellConfig& cell) { return {cell, 1, 0, ""}; }

class ModelledCluster {
 public:
  // measured: outcomes of profile trials (docs/profiles-and-clusters.md), for a cluster that no
  // file declares. Throws as LoadDeclaredCluster. Cost: calibrates once a draw, some seconds.
  ModelledCluster(const ProfileFolders& profiles, std::string name, ProfileOutcomes measured);

  const std::string& name() const noexcept { return name_; }
  // Null: measured.
  const DeclaredCluster* declared() const noexcept { return declared_; }
  // Whether a cell has draws: its cluster is declared, or its profiles state their errors.
  bool HasDraws(const CellConfig& cell) const;
  // "" if links can be made faster or slower, else why not.
  std::string WhyFixedBandwidth() const;

  // The profiles of a cell in a draw, 0 being as stated; `bandwidth`: a factor on inter_node_gbps
  // of a declared cluster.
  ProfileOutcomes Profiles(const CellConfig& cell, int draw, double bandwidth = 1) const;

  // The inputs of declared clusters that are not known exactly. PrepareEnds makes a profile for
  // each with that input at either end. The first call for an input and an end calibrates, one at a
  // time.
  const std::vector<std::string>& open_inputs() const noexcept { return open_inputs_; }
  void PrepareEnds();
  ProfileOutcomes ProfilesAtEnd(const CellConfig& cell, const std::string& input,
                                RangeEnd end) const;

 private:
  const ProfileFolders& profiles_;
  std::string name_;
  ProfileOutcomes measured_;
  const DeclaredCluster* declared_ = nullptr;
  std::vector<std::string> open_inputs_;
  std::map<std::pair<std::string, RangeEnd>, DeclaredCluster> at_ends_;
};

}  // namespace sparfuse::harness
