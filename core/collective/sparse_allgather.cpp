// Runs the sparse all-gather: each rank's payload goes once around the ring, at its true length.
//
// Source:      R. Thakur, R. Rabenseifner & W. Gropp, Optimization of Collective Communication
//              Operations in MPICH, IJHPCA 19(1), 2005 (ring all-gather).
// Deviations:  counts are not exchanged first: a message's length tells its count.
#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {

void CheckGatherBuffers(std::string_view collective, const ExchangeBuffers& buffers,
                        std::size_t ranks) {
  if (buffers.capacity_bytes % buffers.element_bytes != 0 ||
      buffers.own.size() % buffers.element_bytes != 0) {
    SPARFUSE_THROW(kInternal, collective, ": payload of ", buffers.own.size(),
                   " bytes, capacity of ", buffers.capacity_bytes, ": expected multiples of ",
                   buffers.element_bytes);
  }
  if (buffers.own.size() > buffers.capacity_bytes ||
      buffers.gathered.size() < ranks * buffers.capacity_bytes) {
    SPARFUSE_THROW(kInternal, collective, ": payload of ", buffers.own.size(),
                   " bytes and room for ", buffers.gathered.size(), " do not fit ", ranks,
                   " payloads of at most ", buffers.capacity_bytes);
  }
}

void CheckPayloadBytes(std::string_view collective, const ExchangeBuffers& buffers,
                       std::size_t rank, std::size_t bytes) {
  if (bytes % buffers.element_bytes == 0) return;
  SPARFUSE_THROW(kComm, collective, ": payload of rank ", rank, " has ", bytes,
                 " bytes: expected a multiple of ", buffers.element_bytes);
}

namespace {

class SparseGather final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const int next = static_cast<int>((rank + 1) % ranks);
    const int previous = static_cast<int>((rank + ranks - 1) % ranks);
    buffers.payloads.assign(ranks, {});
    buffers.payloads[rank] = buffers.own;
    const bool shared = communicator.shares_memory() && buffers.own_owner != nullptr;
    if (shared) {
      CheckPayloadBytes("sparse-allgather", buffers, rank, buffers.own.size());
      buffers.held.assign(ranks, {});
      buffers.held[rank] = {buffers.own_owner, buffers.own};
    } else {
      CheckGatherBuffers("sparse-allgather", buffers, ranks);
    }
    for (std::size_t step = 0; step + 1 < ranks; ++step) {
      const std::size_t outgoing = (rank + ranks - step) % ranks;
      const std::size_t incoming = (rank + ranks - step - 1) % ranks;
      std::span<const std::byte>& came = buffers.payloads[incoming];
      if (shared) {
        co_await Complete(communicator.IrecvShared(previous, tag, buffers.held[incoming]),
                          communicator.IsendShared(next, tag, buffers.held[outgoing]));
        came = buffers.held[incoming].bytes;
      } else {
        const auto slot =
            buffers.gathered.subspan(incoming * buffers.capacity_bytes, buffers.capacity_bytes);
        const auto requests =
            co_await Complete(communicator.Irecv(previous, tag, slot),
                              communicator.Isend(next, tag, buffers.payloads[outgoing]));
        came = slot.first(requests[0]->bytes());
      }
      CheckPayloadBytes("sparse-allgather", buffers, incoming, came.size());
    }
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    const std::vector<std::uint64_t>& bytes = sizes.payload_bytes;
    RoundPlan plan;
    const std::size_t ranks = bytes.size();
    plan.per_rank.resize(ranks);
    if (ranks <= 1) return plan;
    AddRounds(ranks, *std::max_element(bytes.begin(), bytes.end()), topology, plan.rounds);
    // A rank sends every payload but its successor's, and receives all but its own.
    const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      plan.per_rank[rank] = {ranks - 1, ranks - 1, total - bytes[(rank + 1) % ranks],
                             total - bytes[rank]};
    }
    return plan;
  }

  bool AddEvenRounds(std::uint64_t payload_bytes, const Topology& topology,
                     std::vector<Round>& rounds) const override {
    AddRounds(static_cast<std::size_t>(topology.ranks), payload_bytes, topology, rounds);
    return true;
  }

 private:
  // In every step the ranks together send all payloads, one each: the largest sets the pace.
  static void AddRounds(std::size_t ranks, std::uint64_t largest, const Topology& topology,
                        std::vector<Round>& rounds) {
    if (ranks > 1) rounds.push_back(RingRound(ranks - 1, (ranks - 1) * largest, topology));
  }
};

}  // namespace

CollectiveDescriptor SparseAllGather() {
  return {.name = "sparse-allgather",
          .source = "Thakur, Rabenseifner & Gropp, IJHPCA 2005 (ring)",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = MakePlain<SparseGather>,
          .of_library = true,
          .host_memory = true,
          .traits = [](const Options&) { return CollectiveTraits{.reads_in_place = true}; },
          .summary = "payloads of all ranks, once around a ring at their true lengths"};
}

}  // namespace sparfuse
