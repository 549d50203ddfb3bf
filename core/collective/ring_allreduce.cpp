// Runs the dense ring all-reduce: a reduce-scatter, then an all-gather, of P chunks around a ring.
//
// Source:      P. Patarasuk & X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
//              workstations, JPDC 69(2), 2009.
// Deviations:  chunk j has n/P + [j < n mod P] elements; empty chunks are not sent.
//
// Every chunk is reduced in one place and copied from there, so all ranks get equal bits.
#include <algorithm>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

// The chunks of n elements on P ranks. Chunk numbers are taken modulo P.
struct Chunks {
  std::size_t elements;
  std::size_t ranks;

  std::size_t Index(std::size_t chunk) const { return chunk % ranks; }
  std::size_t Size(std::size_t chunk) const {
    return elements / ranks + (Index(chunk) < elements % ranks ? 1 : 0);
  }
  std::size_t Begin(std::size_t chunk) const {
    return Index(chunk) * (elements / ranks) + std::min(Index(chunk), elements % ranks);
  }
  std::size_t NonEmpty() const { return std::min(elements, ranks); }
};

}  // namespace

Task RunRingAllReduce(Communicator& communicator, std::span<float> data, int tag) {
  if (communicator.stream().device.kind != DeviceKind::kHost) {
    SPARFUSE_THROW(kUnsupported,
                   "ring-allreduce: adds in host memory, and messages of transport \"" +
                       std::string(communicator.backend()) +
                       "\" lie on a device; use native-allreduce");
  }
  const auto ranks = static_cast<std::size_t>(communicator.size());
  if (ranks == 1 || data.empty()) co_return;
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const int next = static_cast<int>((rank + 1) % ranks);
  const int previous = static_cast<int>((rank + ranks - 1) % ranks);
  const Chunks chunks{data.size(), ranks};
  const auto part = [&](std::size_t chunk) {
    return data.subspan(chunks.Begin(chunk), chunks.Size(chunk));
  };
  const auto scratch = std::make_unique_for_overwrite<float[]>(chunks.Size(0));

  // Step s sends chunk `rank - s` on and takes in the one before it. The first P-1 steps add what
  // comes in, after which chunk rank+1 is reduced here; the others pass the reduced chunks on.
  for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
    const bool reducing = step < ranks - 1;
    const std::span<float> outgoing = part(rank + 2 * ranks - step);
    const std::span<float> target = part(rank + 2 * ranks - step - 1);
    const std::span<float> incoming =
        reducing ? std::span<float>(scratch.get(), target.size()) : target;
    std::vector<std::unique_ptr<Request>> requests;
    if (!incoming.empty()) {
      requests.push_back(communicator.Irecv(previous, tag, std::as_writable_bytes(incoming)));
    }
    if (!outgoing.empty()) {
      requests.push_back(communicator.Isend(next, tag, std::as_bytes(outgoing)));
    }
    requests = co_await Complete(std::move(requests));
    if (!incoming.empty() && requests[0]->bytes() != incoming.size_bytes()) {
      SPARFUSE_THROW(kComm, "ring-allreduce: chunk of " + std::to_string(requests[0]->bytes()) +
                                " bytes from rank " + std::to_string(requests[0]->peer()) +
                                ": expected " + std::to_string(incoming.size_bytes()) +
                                "; ranks disagree on the length of the buffer");
    }
    if (reducing && !incoming.empty()) AddInto(incoming, target);
  }
}

Round RingRound(std::size_t steps, std::uint64_t bytes, const Topology& topology) {
  Round round{
      .repeat = static_cast<std::uint32_t>(steps), .bytes = bytes, .link = SlowestLink(topology)};
  if (topology.nodes() > 1 && topology.ranks_per_node > 1) {
    const auto crossings = static_cast<std::uint32_t>(topology.nodes());
    round.within_bytes = bytes;
    round.within_starts = round.repeat - std::min(round.repeat, crossings);
  }
  return round;
}

RoundPlan RingAllReduceRounds(std::size_t elements, const Topology& topology) {
  RoundPlan plan;
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  plan.per_rank.resize(ranks);
  if (ranks <= 1 || elements == 0) return plan;
  const Chunks chunks{elements, ranks};

  // In every step the ranks send all chunks, each another one: the largest sets the pace.
  Round round = RingRound(ranks - 1, (ranks - 1) * chunks.Size(0) * sizeof(float), topology);
  round[Work::kAdd] = elements - chunks.Size(ranks - 1);  // all but the own, smallest chunk
  plan.rounds.push_back(round);
  round[Work::kAdd] = 0;
  plan.rounds.push_back(round);

  // Rank r sends every chunk twice, but for r+1 (once: it ends its reduction here) and r+2 (once:
  // the next rank has it already). It receives what rank r-1 sends.
  const auto sent_by = [&](std::size_t rank) {
    Traffic traffic;
    traffic.messages_sent = 2 * chunks.NonEmpty() - (chunks.Size(rank + 1) > 0 ? 1 : 0) -
                            (chunks.Size(rank + 2) > 0 ? 1 : 0);
    traffic.bytes_sent =
        (2 * elements - chunks.Size(rank + 1) - chunks.Size(rank + 2)) * sizeof(float);
    return traffic;
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Traffic received = sent_by(rank + ranks - 1);
    plan.per_rank[rank] = sent_by(rank);
    plan.per_rank[rank].messages_received = received.messages_sent;
    plan.per_rank[rank].bytes_received = received.bytes_sent;
  }
  return plan;
}

namespace {

class Ring final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    return RunRingAllReduce(communicator, buffers.dense, tag);
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return RingAllReduceRounds(sizes.payload_bytes.front() / sizeof(float), topology);
  }
};

}  // namespace

CollectiveDescriptor RingAllReduce() {
  return {.name = "ring-allreduce",
          .source = "Patarasuk & Yuan, JPDC 2009",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = [](const Options&) -> std::unique_ptr<Collective> {
            return std::make_unique<Ring>();
          },
          .of_library = true,
          .host_memory = true,
          .summary = "dense sums around a ring: reduce-scatter, then all-gather"};
}

}  // namespace sparfuse
