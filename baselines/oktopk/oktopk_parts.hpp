// Holds the parts of an exchange of Ok-Topk: regions, their sums, blocks of equal size, and the
// threshold of the sums.
//
// First: divides a range into as many regions as there are ranks, in each of which a rank finds
// about as many of the elements that it has selected.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1 (balanced split and reduce): boundaries are averaged over the ranks.
//
// Last: keeps a threshold for the sums over ranks: exact now and then, adapted by what reaches it
// between (Algorithm 1 there, period tau'). Band and factors are as in the published code, where
// each of its applications has its own:
//         its applications has its own:
//
//           application                                VGG    LSTM   BERT
//           period                                     32     32     128
//           lowered where fewer than this part of k    2/3    3/4    4/5
//           divided by                                 1.008  1.01   1.036
//           raised where more than this part of k      4/3    5/4    5/4
//           multiplied by                              1.008  1.008  1.025
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/payload.hpp"
#include "core/payload/sums.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// [P - 1] where regions 1, ..., P - 1 would begin for one rank: every floor(count / P)-th of its
// indices. A rank that has selected fewer than P elements votes for equal regions. Increasing,
// below `elements` + 1.
std::vector<std::int64_t> RegionVotes(std::span<const std::uint32_t> indices, std::size_t elements,
                                      std::size_t ranks);

// Sets `boundaries` to [P + 1] 0, the means over the ranks of their votes, rounded down, and
// `elements`: region j is [boundaries[j], boundaries[j + 1]) and may be empty. Equal on all ranks:
// rank j adds up the votes for boundary j, in integers, and tells the others.
Task VoteOnRegions(Communicator& communicator, std::span<const std::uint32_t> indices,
                   std::size_t elements, std::vector<std::size_t>& boundaries, int tag);

// Adds its rounds, and its traffic to plan.per_rank.
void AddVoteRounds(const Topology& topology, RoundPlan& plan);

// Moves elements that lie unevenly on the ranks to blocks of about equal size, in rank order.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.2 (data balancing before the all-gather).
//
// The ranks' elements, one rank's behind the other's, are one array. Block j is the j-th of P parts
// of it, of floor(K / P) elements, the first K mod P blocks of one more.

// [ranks] elements of each block of `total`.
std::vector<std::uint64_t> BlockCounts(std::uint64_t total, std::size_t ranks);

// Elements begin ... begin + count - 1 of the array: rank `from` has them, and they belong to block
// `to`. Never empty.
struct BlockPiece {
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};
// [< 2 P] all of the array, in order. counts: [P] elements of each rank. Cost: O(P).
std::vector<BlockPiece> BlockPieces(std::span<const std::uint64_t> counts);

// Only what belongs to another rank's block is sent, each piece as one message.
//   counts  [P] elements of each rank, equal on all of them.
//   own     this rank's elements.
//   block   [BlockCounts()[rank] * 8 bytes] set to this rank's block, in the wire form; apart from
//           `own`; 4-byte aligned.
// All arguments outlive the task. Throws Error{kComm} when a message has another length.
Task MoveToBlocks(Communicator& communicator, const SparsePayload& own,
                  std::span<const std::uint64_t> counts, std::span<std::byte> block, int tag);

// Adds its round, and its traffic to plan.per_rank. Cost: O(P).
void AddMoveRounds(std::span<const std::uint64_t> counts, const Topology& topology,
                   RoundPlan& plan);

// Sends each rank what this one has of the other's region, and adds up what the ranks have of the
// own.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1: destinations are rotated, so that no rank is everybody's at once,
//         and taken a bucket at a time, of which one is added while the next is on its way.

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

struct GlobalThreshold {
  std::uint64_t period = 32;  // steps from one exact threshold to the next
  double band_low = 2.0 / 3;  // of k
  double band_high = 4.0 / 3;
  double lower_by = 1.008;
  double raise_by = 1.008;

  // The threshold after a step in which `count` elements reached it. Equal arguments give equal
  // bits.
  float After(float threshold, std::uint64_t count, std::size_t k) const {
    const auto reached = static_cast<double>(count);
    if (reached < band_low * static_cast<double>(k)) {
      return threshold / static_cast<float>(lower_by);
    }
    if (reached > band_high * static_cast<double>(k)) {
      return threshold * static_cast<float>(raise_by);
    }
    return threshold;
  }
};

std::vector<OptionSpec> GlobalThresholdOptions();
// Preconditions as for BoolOption.
GlobalThreshold ReadGlobalThreshold(const Options& resolved);

}  // namespace sparfuse::baselines
