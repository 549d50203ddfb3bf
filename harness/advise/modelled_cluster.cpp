#include "harness/advise/modelled_cluster.hpp"

#include "harness/clusters/profile_data.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/run/model/modelled_cell.hpp"

namespace sparfuse::harness {

ModelledCluster::ModelledCluster(const ProfileFolders& profiles, std::string name,
                                 ProfileOutcomes measured)
    : profiles_(profiles), name_(std::move(name)), measured_(std::move(measured)) {
  if (!IsDeclared(profiles, name_)) return;
  declared_ = &LoadDeclaredCluster(profiles, name_);
  open_inputs_ = OpenInputs(profiles, name_);
  // Draws now, so that threads only read the clusters.
  for (int draw = 1; draw <= kDraws; ++draw) DrawnCluster(profiles, name_, draw);
}

bool ModelledCluster::HasDraws(const CellConfig& cell) const {
  return declared_ != nullptr || KnowsErrors(Profiles(cell, 0));
}

std::string ModelledCluster::WhyFixedBandwidth() const {
  if (declared_ == nullptr) return "links of " + name_ + " are as they were measured";
  if (declared_->curves.empty()) return "";
  return "all-reduces of " + name_ + " are curves that its file states";
}

ProfileOutcomes ModelledCluster::Profiles(const CellConfig& cell, int draw,
                                          double bandwidth) const {
  if (declared_ == nullptr) {
    ProfileOutcomes outcomes = ProfilesOf(measured_, cell);
    if (outcomes.empty()) {
      SPARFUSE_THROW(kConfig, "cluster \"" + name_ + "\" has no profile of " + SubjectName(cell) +
                                  "; measure it with `" +
                                  (IsOwnCluster(name_) ? "sparfuse profile " + cell.workload
                                                       : MeasureCommand(cell, name_)) +
                                  "`");
    }
    return draw == 0 ? outcomes : PerturbedOutcomes(outcomes, static_cast<std::uint64_t>(draw));
  }
  const DeclaredCluster& drawn = DrawnCluster(profiles_, name_, draw);
  if (bandwidth == 1) return DeclaredProfile(drawn, cell);
  DeclaredCluster other = drawn;
  other.Find("inter_node_gbps")->value *= bandwidth;
  return DeclaredProfile(other, cell);
}

void ModelledCluster::PrepareEnds() {
  for (const std::string& input : open_inputs_) {
    for (const RangeEnd end : {RangeEnd::kLow, RangeEnd::kHigh}) {
      if (at_ends_.contains({input, end})) continue;
      at_ends_.emplace(std::pair(input, end), ClusterAtEnd(profiles_, name_, input, end));
    }
  }
}

ProfileOutcomes ModelledCluster::ProfilesAtEnd(const CellConfig& cell, const std::string& input,
                                               RangeEnd end) const {
  return DeclaredProfile(at_ends_.at({input, end}), cell);
}

}  // namespace sparfuse::harness
