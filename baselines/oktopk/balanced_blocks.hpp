// Moves elements that lie unevenly on the ranks to blocks of about equal size, in rank order.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.2 (data balancing before the all-gather).
//
// The ranks' elements, one rank's behind the other's, are one array. Block j is the j-th of P parts
// of it, of floor(K / P) elements, the first K mod P blocks of one more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/payload/payload.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

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

}  // namespace sparfuse::baselines
