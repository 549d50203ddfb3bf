// Holds the parts of an exchange of Ok-Topk: regions, their sums, blocks of equal size, and the
// threshold of the sums.
//
// First: divides a range into as many regions as there are ranks, so that a rank has about equally
// many selected elements in each.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1 (balanced split and reduce): boundaries are averaged over the ranks.
//
// Last: keeps a threshold for the sums over ranks. It is exact once a period, and between adapted
// by the number of sums that reach it (Algorithm 1 there, period tau'). Band and factors are as in
// the published code, where each application has its own:
//
//           application                                VGG    LSTM   BERT
//           period                                     32     32     128
//           lowered if fewer than this part of k       2/3    3/4    4/5
//           divided by                                 1.008  1.01   1.036
//           raised if more than this part of k         4/3    5/4    5/4
//           multiplied by                              1.008  1.008  1.025
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/collective.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/payload.hpp"
#include "core/payload/sums.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OkTopkCollective();

// [P - 1] one rank's votes for the begins of regions 1, ..., P - 1: every floor(count / P)-th of
// its indices. A rank that has selected fewer than P elements votes for equal regions. Votes
// increase and are below `elements` + 1.
std::vector<std::int64_t> RegionVotes(std::span<const std::uint32_t> indices, std::size_t elements,
                                      std::size_t ranks);

// Sets `boundaries` to [P + 1] numbers: 0, the means of the ranks' votes, rounded down, and
// `elements`. Region j is [boundaries[j], boundaries[j + 1]) and may be empty. Boundaries are equal
// on all ranks: rank j sums the votes for boundary j, in integers, and sends it to the others.
Task VoteOnRegions(Communicator& communicator, std::span<const std::uint32_t> indices,
                   std::size_t elements, std::vector<std::size_t>& boundaries, int tag);

// Adds the rounds of VoteOnRegions to `plan`, and its traffic to plan.per_rank.
void AddVoteRounds(const Topology& topology, RoundPlan& plan);

// Moves elements that lie unevenly on the ranks to blocks of about equal size, in rank order.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.2 (data balancing before the all-gather).
//
// The ranks' elements, concatenated in rank order, are one array of K elements. Block j is the j-th
// of P parts of it, of floor(K / P) elements; the first K mod P blocks have one more.

// [ranks] the number of elements of each block, if K is `total`.
std::vector<std::uint64_t> BlockCounts(std::uint64_t total, std::size_t ranks);

// Elements begin ... begin + count - 1 of the array. Rank `from` has them, and they belong to block
// `to`. Never empty.
struct BlockPiece {
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};
// [< 2 P] pieces that cover the array, in order. counts: [P] elements of each rank. Cost: O(P).
std::vector<BlockPiece> BlockPieces(std::span<const std::uint64_t> counts);

// Sends only pieces that belong to another rank's block, each as one message.
//   counts  [P] elements of each rank; equal on all ranks.
//   own     this rank's elements.
//   block   [BlockCounts()[rank] * 8 bytes] set to this rank's block, in the wire form; must not
//           overlap `own`; 4-byte aligned.
// All arguments outlive the task. Throws Error{kComm} if a message has another length.
Task MoveToBlocks(Communicator& communicator, const SparsePayload& own,
                  std::span<const std::uint64_t> counts, std::span<std::byte> block, int tag);

// Adds the round of MoveToBlocks to `plan`, and its traffic to plan.per_rank. Cost: O(P).
void AddMoveRounds(std::span<const std::uint64_t> counts, const Topology& topology,
                   RoundPlan& plan);

// Sends to each rank this rank's elements of that rank's region, and sums all ranks' elements of
// the own region.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1. Destinations are rotated, so that not all ranks send to the same
//         rank at once. They are taken a bucket at a time: one is added while the next is on its
//         way.

// Numbers of elements of one rank.
struct SplitCounts {
  std::uint64_t kept = 0;      // of its payload, in its own region
  std::uint64_t sent = 0;      // of its payload, in other regions
  std::uint64_t received = 0;  // from all other ranks
};

// Rank r sends to r + 1, r + 2, ... and receives from r - 1, r - 2, ... (modulo P), `bucket` ranks
// at a time, one message a rank, even if it is empty. Sends buffers.own, with its indices. Received
// payloads lie in buffers.gathered, in a slot of buffers.capacity_bytes for each rank.
//   boundaries  [P + 1] of the regions, as VoteOnRegions sets them; equal on all ranks.
//   sums        of the own region, added in rank order, whatever the order of arrival.
// All arguments outlive the task. Throws Error{kComm} if a payload does not consist of whole
// elements or has indices beyond the region.
Task SplitAndReduce(Communicator& communicator, ExchangeBuffers& buffers,
                    const std::vector<std::size_t>& boundaries, std::size_t bucket, RangeSums& sums,
                    SplitCounts& counts, int tag);

// Adds the rounds of SplitAndReduce to `plan`, and its traffic to plan.per_rank.
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
