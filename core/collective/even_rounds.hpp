// Computes the rounds of an exchange in which all ranks have equally large payloads, in a time
// independent of the number of ranks. Planners ask for thousands of sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse {

// A collective that depends only on the lengths of payloads implements this in addition to
// Collective.
class EvenCollective {
 public:
  // Appends to `rounds` the rounds of Collective::Rounds for equal payloads. More bytes never
  // decrease a field of a round.
  virtual void AddEvenRounds(std::uint64_t payload_bytes, const Topology& topology,
                             std::vector<Round>& rounds) const = 0;

 protected:
  ~EvenCollective() = default;
};

// Appends to plan.rounds the rounds of ModelledRounds for equal payloads. Returns false, and does
// nothing, if the collective is no EvenCollective or sums on the host.
bool AddModelledEvenRounds(const Collective& collective, std::uint64_t payload_bytes,
                           const Topology& topology, AllGatherBy gathered_by, RoundPlan& plan);

}  // namespace sparfuse
