// Reads, during the measured steps of a trial, the other work on its cores and the speed of these
// cores.
#pragma once

#include <chrono>
#include <optional>

#include "harness/machine/quiet.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// All members are collective. They are called between steps, so that no step's duration includes
// them: about 2 ms for a run of the reference loop, of which a trial has eight, and less for the
// counters.
class QuietMonitor {
 public:
  // measured_steps: of the whole trial. `rank` must outlive this object.
  QuietMonitor(const Rank& rank, int measured_steps);

  // Measures the emulated link, if the trial has one, before all steps; Gather measures it again.
  // Each takes at most about 0.14 s.
  void MeasureLink();

  // Enclose a row of measured steps; several such intervals add up. under_way: an exchange
  // continues in parallel to the steps. Then the reference loop waits for a later step. Ranks wait
  // for one another around it, and the exchange would end during a time that no step counts.
  void Begin();
  void StepIsDone(bool under_way);
  void End();

  // The readings of all ranks on rank 0, with names of processes in `facts`; nothing on other
  // ranks. Ends an open interval.
  std::optional<Quiet> Gather(PrivateFacts& facts);

 private:
  void RunLoop();

  const Rank& rank_;
  int steps_between_loops_;
  int steps_since_loop_ = 0;
  std::optional<CpuUse> begin_;
  std::chrono::steady_clock::time_point begun_{};
  RankReadings sums_;  // over the intervals
  std::optional<double> load_before_, clock_before_;
  std::optional<QuietLink> link_;
};

}  // namespace sparfuse::harness
