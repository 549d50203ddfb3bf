// Sends each rank what this one has of the other's region, and adds up what the ranks have of the
// own.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1: destinations are rotated, so that no rank is everybody's at once,
//         and taken a bucket at a time, of which one is added while the next is on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/sums.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// Of one rank, elements.
struct SplitCounts {
  std::uint64_t kept = 0;      // of its payload, in its own region
  std::uint64_t sent = 0;      // the others
  std::uint64_t received = 0;  // from all other ranks
};

// Rank r sends to r + 1, r + 2, ... and receives from r - 1, r - 2, ... (modulo P), `bucket` ranks
// at a time, one message a rank, also where there is nothing for it. buffers.own is sent, with its
// indices; what comes lies in buffers.gathered, a slot of buffers.capacity_bytes a rank.
//   boundaries  [P + 1] of the regions, as VoteOnRegions sets them; equal on all ranks.
//   sums        of the own region, added in rank order whatever comes first.
// All arguments outlive the task. Throws Error{kComm} when a payload has no whole elements or
// indices beyond the region.
Task SplitAndReduce(Communicator& communicator, ExchangeBuffers& buffers,
                    const std::vector<std::size_t>& boundaries, std::size_t bucket, RangeSums& sums,
                    SplitCounts& counts, int tag);

// Adds its rounds, and its traffic to plan.per_rank.
void AddSplitRounds(std::span<const SplitCounts> counts, std::size_t bucket,
                    const Topology& topology, RoundPlan& plan);

}  // namespace sparfuse::baselines
