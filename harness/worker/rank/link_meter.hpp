// Measures the rate at which the emulated link of a trial forwards messages, outside its steps.
#pragma once

#include <optional>

#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Measures the link between nodes with a message from each node's first rank to the next node's.
// With one node, measures the links within it with a message from each rank to the next.
class LinkMeter {
 public:
  // `rank` must outlive this object.
  explicit LinkMeter(const Rank& rank) : rank_(rank) {}

  // Whether the trial has an emulated link that ranks share.
  bool HasLink() const;
  double LabelGbps() const;  // 10^9 bit/s

  // Gbit/s of the slowest link, in its best of up to three rounds, equal on all ranks. Collective,
  // at most about 0.14 s. Nothing if start-ups are too long for that time, or if so fast a
  // link would pass on all that memory is used for before a clock tells.
  std::optional<double> Gbps() const;

 private:
  const Rank& rank_;
};

}  // namespace sparfuse::harness
