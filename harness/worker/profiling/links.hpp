// Measures exchanges between ranks: rings of all of them, and pairs.
#pragma once

#include <optional>
#include <vector>

#include "core/device/device.hpp"
#include "harness/records/profile.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/worker/rank/rank.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {

// Seconds of an exchange of nothing, mean over ranks. Collective.
Estimate ExchangeDispatch(const Rank& rank, int repeats);

// Adds "link": between neighbours of a ring through all ranks, and so between nodes if there are
// several. If several nodes have several ranks each, it also adds "node_link", in rings of the
// ranks of a node. Both have a fit. If the backend has its own all-reduce, it adds
// "native_all_reduce". Uses the profile's exchange_dispatch_seconds. The same on all ranks.
// Collective; more than one rank.
//
//   beside  computation in parallel, to measure processor time if cores compute; null if they
//           have nothing to do.
void ProfileLinks(const Rank& rank, int repeats, Profile& profile, const Pass* beside = nullptr);

struct PairSample {
  double start_seconds = 0;  // of a message of 8 bytes
  double gbps = 0;           // each way, both at once, of 4 MiB beyond that
};

class PairLinks {
 public:
  explicit PairLinks(const Rank& rank);
  const std::vector<std::vector<RankPair>>& phases() const noexcept { return phases_; }
  // The pair of a phase that this rank is in, if any.
  std::optional<RankPair> Own(std::size_t phase) const;
  // Measures once more, while the other pairs of the phase do the same. Nothing if this rank is in
  // no pair, or if the clock saw no difference between the sizes. Collective.
  std::optional<PairSample> Measure(std::size_t phase);

 private:
  const Rank& rank_;
  std::vector<std::vector<RankPair>> phases_;
  Buffer<std::byte> out_, in_;
};

}  // namespace sparfuse::harness
