// Judges the disturbances of a run, trial by trial, and decides which trials run again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/machine.hpp"
#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// Reruns add at most this share of the time that the run is planned to take.
inline constexpr double kRerunShare = 0.5;

class Disturbances {
 public:
  // rows: the store's trials, oldest first, which tell how fast the cores of their system compute
  // when nothing disturbs them.
  explicit Disturbances(const std::vector<TrialRow>& rows);

  // Adds the judgement to `readings`; nothing if there are none.
  std::optional<Quiet> Judge(const PlannedTrial& trial, const std::optional<Quiet>& readings);

  // Whether `trial`, which ran `times` times, the last time for `seconds`, runs once more at once.
  // This holds for a disturbed throughput trial, up to [quiet] reruns, while the budget lasts. A
  // trained model's quality does not depend on other load. planned_seconds: of all trials of the
  // run, past and future, without reruns; below 0 if it is not known yet. If the answer is yes, the
  // call takes `seconds` from the budget.
  bool RunsAgain(const PlannedTrial& trial, const Quiet& quiet, int times, double seconds,
                 double planned_seconds);

 private:
  // MeanLoopSeconds of the last trials, by the hash of their system and their number of ranks.
  // Trials with equal numbers share cores in the same way.
  std::map<std::pair<std::string, int>, std::vector<double>> loop_seconds_;
  double rerun_seconds_ = 0;
};

}  // namespace sparfuse::harness
