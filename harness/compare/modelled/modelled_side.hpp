// Models cells on the system of one side of a comparison, with the measurements of that system or
// with a declared cluster in its place, and carries the first side's measured ratios over to
// others.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/compare/comparison.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// The source of the times with which the model computes a side's system.
struct SideProfile {
  std::string name;          // "profile trials of a", "lab (measured)"
  std::string declared;      // a declared cluster; "": measured
  std::string file;          // named, and measured; else ""
  ProfileOutcomes outcomes;  // of profile trials, if it is measured
};

// named: a cluster of results/profiles, by the name that cells use. "": all measurements of the
// side's machine, from its own profile trials of the current revisions and from files of
// results/profiles. Throws the errors of reading the named one. Without a name, outcomes may be
// empty.
SideProfile ProfileOfSide(const SystemSide& side, const Catalog& catalog,
                          const ProfileFolders& profiles, const std::string& named);

// A ratio of two cells by the model, and the same ratio in each draw of the system's uncertain
// inputs.
struct ModelledRatio {
  double value = 1;
  // kDraws; empty if the profile does not say how well it is known.
  std::vector<double> draws = {};

  // With the ends that the draws leave, no ends without them.
  Interval Band() const;
};
// Divides draw by draw. If one of the two has no draws, the result has none.
ModelledRatio operator/(const ModelledRatio& a, const ModelledRatio& b);

class ModelledSide {
 public:
  // Draws of measured profiles are independent between sides with different `stream`. All declared
  // clusters share the same draws, so that equal inputs have equal errors.
  ModelledSide(const ProfileFolders& profiles, std::string side, SideProfile profile, int stream);

  const SideProfile& profile() const noexcept { return profile_; }

  // The ratio in `metric` (throughput, step_seconds or exposed_communication_seconds) of two live
  // cells that differ in their method alone. hosts: the number of hosts with ranks. With more than
  // one each rank has a machine of its own; else all share the cores of one, like live ranks.
  // Throws Error{kConfig} naming the missing part of the profile and the command that measures it.
  // Cost: simulates each cell once, and a step of it kDraws times; results are kept.
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

// The product of two quantities that are known independently. The distance of its ends, in the
// logarithm, is the root of the sum of squares of the two distances. It has no ends if one of the
// two has none. n: of the first.
Interval Product(const Interval& a, const Interval& b);

Interval Inverse(const Interval& of);

// Sets `transported` of every cell of the comparison: the first side's ratios, carried over by the
// model. The remaining difference is the part that the profiles do not explain. Say the first side
// measured a ratio R, its model computes m, and the model of the other side computes M. The
// predicted ratio of the other side is R M / m: the error of the model on the first side (R / m) is
// assumed to hold on the other, too. The residual is the other side's measured ratio over this. The
// intervals are those of the first side's blocks, or of both sides' as for verdicts, combined with
// the draws of M / m.
//
// models: in the order of the comparison's sides. Throws the errors of damaged profiles; missing
// facts are named in `lacks`.
void CarryOver(SystemComparison& comparison,
               const std::vector<std::unique_ptr<ModelledSide>>& models);

// The number of hosts with ranks in a setting, on a side or, if its trials do not say, on the first
// side.
int HostsOf(const ComparedSetting& setting, std::size_t side);

}  // namespace sparfuse::harness
