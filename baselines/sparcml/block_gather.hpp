// Gathers blocks of known unequal sizes on all ranks, in ceil(log2 P) rounds.
//
// Source: J. Bruck et al., Efficient Algorithms for All-to-All Communications in Multiport
//         Message-Passing Systems, IEEE TPDS 8(11), 1997 (concatenation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/rounds.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// Block r, of rank r, is bytes begins[r] ... begins[r + 1] - 1 of `data`.
//
//   data    in: the rank's own block; out: all of them.
//   begins  [P + 1] ascending, equal on all ranks; data.size() is the last one.
//
// A rank that holds m blocks from its own on, modulo P, sends so many as are missing of them, m at
// most, to rank r - m and gets as many from rank r + m. Blocks lie where they belong: a message
// that would run over the end is two. Error{kComm} where a message has another length.
Task GatherBlocks(Communicator& communicator, std::span<std::byte> data,
                  std::span<const std::uint64_t> begins, int tag);
// Appends its rounds, and counts them in plan.per_rank.
void AddGatherRounds(std::span<const std::uint64_t> begins, const Topology& topology,
                     RoundPlan& plan);

}  // namespace sparfuse::baselines
