// Calls the backend's own collectives, for measured mode. Their traffic cannot be observed from
// outside. An all-reduce is counted as a ring, the least traffic of a bandwidth-optimal algorithm.
//
// An all-gather of sparse payloads on devices exchanges counts first. Then the payloads go as a
// group of messages or padded, whichever costs less (core/transport/nccl/nccl.hpp states both
// costs). Counted are the counts, 8 bytes to every rank, and then the messages of the group, or of
// a ring with padded payloads.
#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/transport/nccl/nccl.hpp"

namespace sparfuse {
namespace {

class Native final : public CountedAsRing {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int /*tag*/) const override {
    if (!communicator.has_native_all_reduce()) {
      SPARFUSE_THROW(kUnsupported, "native-allreduce: transport \"", communicator.backend(),
                     "\" has no all-reduce of its own; use ring-allreduce");
    }
    co_await Complete(communicator.NativeAllReduceSum(buffers.dense));
  }
};

// The default link constants decide here between the two ways.
RoundPlan RoundsOf(std::span<const std::uint64_t> sizes, const Topology& topology) {
  RoundPlan plan;
  const std::uint64_t ranks = sizes.size();
  plan.per_rank.resize(ranks);
  if (ranks <= 1) return plan;
  const std::uint64_t peers = ranks - 1;
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});

  Round counts;
  counts.messages = static_cast<std::uint32_t>(peers);
  counts.bytes = peers * sizeof(std::uint64_t);
  counts.link = SlowestLink(topology);
  plan.rounds.push_back(counts);
  for (Traffic& traffic : plan.per_rank) traffic = {peers, peers, counts.bytes, counts.bytes};
  if (largest == 0) return plan;

  const bool padded = CheaperAllGather(sizes, topology, {}) == AllGatherAlgorithm::kPadded;
  Round payloads;
  (padded ? payloads.repeat : payloads.messages) = static_cast<std::uint32_t>(peers);
  payloads.bytes = peers * largest;  // grouped: output of the rank with the most
  payloads.link = SlowestLink(topology);
  plan.rounds.push_back(payloads);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (padded) {
      plan.per_rank[rank] += {peers, peers, peers * largest, peers * largest};
      continue;
    }
    // An empty payload is not sent.
    const std::uint64_t others =
        static_cast<std::uint64_t>(std::count_if(sizes.begin(), sizes.end(),
                                                 [](std::uint64_t bytes) { return bytes > 0; })) -
        (sizes[rank] > 0 ? 1 : 0);
    plan.per_rank[rank] +=
        {sizes[rank] > 0 ? peers : 0, others, peers * sizes[rank], total - sizes[rank]};
  }
  return plan;
}

class NcclGather final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int /*tag*/) const override {
    if (!communicator.has_native_all_gather()) {
      SPARFUSE_THROW(kUnsupported, "nccl-allgather: transport \"", communicator.backend(),
                     "\" has no all-gather of its own; use sparse-allgather");
    }
    CheckGatherBuffers("nccl-allgather", buffers, static_cast<std::size_t>(communicator.size()));
    co_await Complete(communicator.NativeAllGather(buffers.own, buffers.gathered,
                                                   buffers.capacity_bytes, buffers.payloads));
    for (std::size_t rank = 0; rank < buffers.payloads.size(); ++rank) {
      CheckPayloadBytes("nccl-allgather", buffers, rank, buffers.payloads[rank].size());
    }
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return RoundsOf(sizes.payload_bytes, topology);
  }
};

}  // namespace

CollectiveDescriptor NativeAllReduce() {
  static constexpr std::array<std::string_view, 2> kBackends{"mpi", "nccl"};
  return {.name = "native-allreduce",
          .source = "the backend's own (MPI_Iallreduce, ncclAllReduce)",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = MakePlain<Native>,
          .native = true,
          .backends = kBackends,
          .of_library = true,
          .summary = "dense sums by the backend's own all-reduce"};
}

CollectiveDescriptor NcclAllGather() {
  static constexpr std::array<std::string_view, 1> kBackends{"nccl"};
  return {.name = "nccl-allgather",
          .source = "the backend's own (NCCL)",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = MakePlain<NcclGather>,
          .native = true,
          .backends = kBackends,
          .of_library = true,
          .summary = "payloads of all ranks, by the backend's own messages or all-gather"};
}

}  // namespace sparfuse
