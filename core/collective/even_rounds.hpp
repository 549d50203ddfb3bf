// Says what an exchange takes to which all ranks give as many bytes, in a time that does not grow
// with ranks: what planners ask for thousands of sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse {

// A collective that looks at nothing but the lengths of payloads has this beside Collective.
class EvenCollective {
 public:
  // Appends to `rounds` those of Collective::Rounds for equal payloads. With more bytes no field is
  // less.
  virtual void AddEvenRounds(std::uint64_t payload_bytes, const Topology& topology,
                             std::vector<Round>& rounds) const = 0;

 protected:
  ~EvenCollective() = default;
};

// Appends to plan.rounds those of ModelledRounds for equal payloads. Returns false, and does
// nothing, where the collective is no EvenCollective, or sums on the host.
bool AddModelledEvenRounds(const Collective& collective, std::uint64_t payload_bytes,
                           const Topology& topology, AllGatherBy gathered_by, RoundPlan& plan);

}  // namespace sparfuse
