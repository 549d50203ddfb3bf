// Reads, during the measured steps of a trial, the other work on its cores and the speed of these
// cores; outside its steps, the rate at which its emulated link forwards messages.
#pragma once

#include <chrono>
#include <optional>

#include "harness/machine/quiet.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Measures the link between nodes with a message from each node's first rank to the next node's.
// With one node, measures the links within it with a message from each rank to the next.
class LinkMeter {
 public:
  // `rank` must outlive this object.
  explicit LinkMeter(const Rank& rank) : rank_(rank) {}

  // Whether the trial has an emulated link that ranks share.
  bool HasLink() const { return rank_.config.link.has_value() && rank_.size() > 1; }
  double LabelGbps() const {  // 10^9 bit/s
    const LinkShape& link = *rank_.config.link;
    return rank_.size() > rank_.config.ranks_per_node ? link.gbps : link.intra_node_gbps;
  }

  // Gbit/s of the slowest link, in its best of up to three rounds, equal on all ranks. Collective,
  // at most about 0.14 s. Nothing if start-ups are too long for that time, or if so fast a
  // link would pass on all that memory is used for before a clock tells.
  std::optional<double> Gbps() const;

 private:
  const Rank& rank_;
};

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
