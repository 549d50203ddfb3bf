#include "harness/run/live/disturbance.hpp"

#include "harness/machine/quiet.hpp"

namespace sparfuse::harness {
namespace {

// Several launches of trials that take turns. If a clock falls for good, for instance with another
// power plan, it is the new normal after three quarters of them.
constexpr std::size_t kCompared = 40;

void Keep(std::vector<double>& last, const std::optional<Quiet>& readings) {
  if (!readings) return;
  const auto seconds = MeanLoopSeconds(*readings);
  if (!seconds) return;
  last.push_back(*seconds);
  if (last.size() > kCompared) last.erase(last.begin());
}

}  // namespace

Disturbances::Disturbances(const std::vector<TrialRow>& rows) {
  for (const TrialRow& row : rows)
    Keep(loop_seconds_[{row.system_hash, row.workers}], QuietOf(row.quiet));
}

std::optional<Quiet> Disturbances::Judge(const PlannedTrial& trial,
                                         const std::optional<Quiet>& readings) {
  std::vector<double>& last = loop_seconds_[{HashOf(trial.system), trial.config.workers}];
  std::optional<Quiet> judged;
  if (readings) judged = JudgeQuiet(*readings, trial.quiet, Undisturbed(last));
  Keep(last, readings);
  return judged;
}

bool Disturbances::RunsAgain(const PlannedTrial& trial, const Quiet& quiet, int times,
                             double seconds, double planned_seconds) {
  if (!quiet.disturbed) return false;
  if (trial.config.kind != TrialKind::kThroughput || times > trial.quiet.reruns) return false;
  if (rerun_seconds_ + seconds > kRerunShare * planned_seconds) return false;
  rerun_seconds_ += seconds;
  return true;
}

}  // namespace sparfuse::harness
