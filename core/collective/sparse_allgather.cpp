// Runs the sparse all-gather: each rank's payload travels once around the ring, at true length.
//
// Source:      R. Thakur, R. Rabenseifner & W. Gropp, Optimization of Collective Communication
//              Operations in MPICH, IJHPCA 19(1), 2005 (ring all-gather).
// Deviations:  counts are not exchanged first: a message's length says its count.
#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {

void CheckGatherBuffers(std::string_view collective, const ExchangeBuffers& buffers,
                        std::size_t ranks) {
  const std::string name(collective);
  if (buffers.capacity_bytes % buffers.element_bytes != 0 ||
      buffers.own.size() % buffers.element_bytes != 0) {
    SPARFUSE_THROW(kInternal, name + ": payload of " + std::to_string(buffers.own.size()) +
                                  " bytes, capacity of " + std::to_string(buffers.capacity_bytes) +
                                  ": expected multiples of " +
                                  std::to_string(buffers.element_bytes));
  }
  if (buffers.own.size() > buffers.capacity_bytes ||
      buffers.gathered.size() < ranks * buffers.capacity_bytes) {
    SPARFUSE_THROW(kInternal, name + ": payload of " + std::to_string(buffers.own.size()) +
                                  " bytes and room for " + std::to_string(buffers.gathered.size()) +
                                  " do not fit " + std::to_string(ranks) + " payloads of at most " +
                                  std::to_string(buffers.capacity_bytes));
  }
}

void CheckPayloadBytes(std::string_view collective, const ExchangeBuffers& buffers,
                       std::size_t rank, std::size_t bytes) {
  if (bytes % buffers.element_bytes == 0) return;
  SPARFUSE_THROW(kComm, std::string(collective) + ": payload of rank " + std::to_string(rank) +
                            " has " + std::to_string(bytes) + " bytes: expected a multiple of " +
                            std::to_string(buffers.element_bytes));
}

namespace {

Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  CheckGatherBuffers("sparse-allgather", buffers, ranks);
  const int next = static_cast<int>((rank + 1) % ranks);
  const int previous = static_cast<int>((rank + ranks - 1) % ranks);
  buffers.by_rank.assign(ranks, {});
  buffers.by_rank[rank] = buffers.own;

  for (std::size_t step = 0; step + 1 < ranks; ++step) {
    const std::size_t outgoing = (rank + ranks - step) % ranks;
    const std::size_t incoming = (rank + ranks - step - 1) % ranks;
    const auto slot =
        buffers.gathered.subspan(incoming * buffers.capacity_bytes, buffers.capacity_bytes);
    const auto requests =
        co_await Complete(communicator.Irecv(previous, tag, slot),
                          communicator.Isend(next, tag, buffers.by_rank[outgoing]));
    const std::size_t bytes = requests[0]->bytes();
    CheckPayloadBytes("sparse-allgather", buffers, incoming, bytes);
    buffers.by_rank[incoming] = slot.first(bytes);
  }
}

RoundPlan Rounds(std::span<const std::uint64_t> sizes, const Topology& topology) {
  RoundPlan plan;
  const std::size_t ranks = sizes.size();
  plan.per_rank.resize(ranks);
  if (ranks <= 1) return plan;
  // In every step the ranks send all payloads, each another one: the largest sets the pace.
  Round round;
  round.repeat = static_cast<std::uint32_t>(ranks - 1);
  round.bytes = (ranks - 1) * *std::max_element(sizes.begin(), sizes.end());
  round.link = SlowestLink(topology);
  plan.rounds.push_back(round);
  // A rank sends every payload but its successor's, and receives all but its own.
  const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    plan.per_rank[rank] = {ranks - 1, ranks - 1, total - sizes[(rank + 1) % ranks],
                           total - sizes[rank]};
  }
  return plan;
}

}  // namespace

Collective SparseAllGather() {
  return {"sparse-allgather",
          "Thakur, Rabenseifner & Gropp, IJHPCA 2005 (ring)",
          1,
          PayloadKind::kSparse,
          false,
          &Run,
          &Rounds,
          {},
          true};
}

}  // namespace sparfuse
