// Declares small collectives for control, set-up and checks. They work on host memory, over
// communicator.host().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// Element-wise max of a few integers over all ranks, all-to-all in one round. values: equal length
// on all ranks, overwritten with the result.
Task AllReduceMax(Communicator& communicator, std::span<std::int64_t> values, int tag);
RoundPlan AllReduceMaxRounds(std::size_t values, const Topology& topology);

// Binomial-tree broadcast from `root`, and an all-to-one-round barrier.
Task Broadcast(Communicator& communicator, std::span<std::byte> data, int root, int tag);
Task Barrier(Communicator& communicator, int tag);
// Gathers equal-sized blocks to every rank. out: size() * own.size() bytes, rank order.
Task AllGather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> out,
               int tag);

}  // namespace sparfuse
