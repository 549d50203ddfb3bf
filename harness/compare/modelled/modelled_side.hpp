// Models cells on the system of one side of a comparison, with the measurements of that system or
// with a declared cluster that stands for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/compare/side.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// Where the model has the times of a side's system from.
struct SideProfile {
  std::string name;          // "profile trials of a", "lab (measured)"
  std::string declared;      // a declared cluster; "": measured
  std::string file;          // named, and measured; else ""
  ProfileOutcomes outcomes;  // of profile trials, where it is measured
};

// named: a cluster of results/profiles, as cells name one; "": all that was measured of the side's
// machine, in its own profile trials of the current revisions and in files of results/profiles.
// Throws what reading the named one throws; without a name, outcomes may be empty.
SideProfile ProfileOfSide(const SystemSide& side, const Catalog& catalog,
                          const ProfileFolders& profiles, const std::string& named);

// A ratio of two cells by the model, and the same in each draw of what is not known of the system.
struct ModelledRatio {
  double value = 1;
  // kDraws; empty where the profile does not say how well it is known.
  std::vector<double> draws = {};

  // With the ends that the draws leave, no ends without them.
  Interval Band() const;
};
// Of the same draws: those of ratios that have none are not known either.
ModelledRatio operator/(const ModelledRatio& a, const ModelledRatio& b);

class ModelledSide {
 public:
  // Draws of measured profiles are independent of those of a side with another `stream`, draws of
  // declared clusters are those of all declared clusters: equal inputs have equal errors.
  ModelledSide(const ProfileFolders& profiles, std::string side, SideProfile profile, int stream);

  const SideProfile& profile() const noexcept { return profile_; }

  // Of `metric` (throughput, step_seconds or exposed_communication_seconds) of two live cells that
  // differ in their method alone. hosts: that ranks are on; with more than one each has a machine,
  // else they share the cores of one, as live ranks do. Throws Error{kConfig} naming what the
  // profile lacks and the command that measures it. Cost: simulates each cell once, and a step of
  // it kDraws times; what was simulated is kept.
  ModelledRatio RatioOf(const CellConfig& cell, const CellConfig& over, const std::string& metric,
                        int hosts);

 private:
  struct Steps {
    StepModel expected;
    std::vector<StepModel> draws;
  };
  const Steps& StepsOf(const CellConfig& cell);
  CellConfig Placed(CellConfig cell, int hosts) const;

  const ProfileFolders& profiles_;
  std::string side_;
  SideProfile profile_;
  int stream_;
  std::optional<ModelledCluster> cluster_;
  std::map<std::string, Steps> steps_;  // by the hash of the modelled cell
};

}  // namespace sparfuse::harness
