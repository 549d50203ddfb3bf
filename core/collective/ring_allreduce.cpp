// Runs the dense ring all-reduce: a reduce-scatter, then an all-gather, of P chunks around a ring.
//
// Source:      P. Patarasuk & X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
//              workstations, JPDC 69(2), 2009.
// Deviations:  chunk j has n/P + [j < n mod P] elements (algorithms.hpp), unless a half of the ring
//              is given the begins of chunks; empty chunks are not sent.
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

// The operands of a half of the ring: this rank's place in it, and the chunks.
struct Place {
  Place(Communicator& communicator, std::span<float> values,
        std::span<const std::uint32_t> begins = {})
      : ranks(static_cast<std::size_t>(communicator.size())),
        rank(static_cast<std::size_t>(communicator.rank())),
        data(values),
        shards{values.size(), ranks, begins} {}

  std::span<float> Part(std::size_t chunk) const {
    return data.subspan(shards.Begin(chunk), shards.Size(chunk));
  }

  std::size_t ranks, rank;
  std::span<float> data;
  Shards shards;
};

Task Step(Communicator& communicator, std::span<const float> outgoing, std::span<float> incoming,
          int tag) {
  return StepAroundRing(communicator, "ring-allreduce", std::as_bytes(outgoing),
                        std::as_writable_bytes(incoming), tag);
}

// Step s sends chunk `first - s` on, and adds the arrival to the chunk before it. After the last
// step chunk `first + 1` is reduced here.
Task ReduceAround(Communicator& communicator, const Place& place, std::size_t first, int tag) {
  const auto scratch = std::make_unique_for_overwrite<float[]>(place.shards.Largest());
  for (std::size_t step = 0; step + 1 < place.ranks; ++step) {
    const std::size_t chunk = first + 2 * place.ranks - step;
    const std::span<float> target = place.Part(chunk - 1);
    const std::span<float> incoming(scratch.get(), target.size());
    co_await Step(communicator, place.Part(chunk), incoming, tag);
    AddInto(incoming, target);
  }
}

// Step s passes chunk `first - s` on; the arrival replaces the chunk before it.
Task GatherAround(Communicator& communicator, const Place& place, std::size_t first, int tag) {
  for (std::size_t step = 0; step + 1 < place.ranks; ++step) {
    const std::size_t chunk = first + 2 * place.ranks - step;
    co_await Step(communicator, place.Part(chunk), place.Part(chunk - 1), tag);
  }
}

void RequireHost(std::string_view collective, const Communicator& communicator) {
  if (communicator.stream().device.kind == DeviceKind::kHost) return;
  SPARFUSE_THROW(kUnsupported, collective, ": adds in host memory, but messages of transport \"",
                 communicator.backend(), "\" lie on a device; use native-allreduce");
}

Round RoundOf(const Shards& shards, const RingHalf& half, const Topology& topology,
              std::size_t element_bytes) {
  const std::size_t ranks = shards.members;
  Round round = RingRound(ranks - 1, (ranks - 1) * shards.Largest() * element_bytes, topology);
  if (half.reduces) {  // all but the smallest chunk
    round[Work::kAdd] = shards.elements - shards.Smallest();
  }
  return round;
}

void AddTraffic(const Shards& shards, const RingHalf& half, std::size_t element_bytes,
                RoundPlan& plan) {
  const std::size_t ranks = shards.members;
  const auto sent_by = [&](std::size_t rank) {
    const std::size_t kept = shards.Size(rank + half.skipped);
    return std::pair(shards.NonEmpty() - (kept > 0 ? 1 : 0),
                     (shards.elements - kept) * element_bytes);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto [sent, sent_bytes] = sent_by(rank);
    const auto [received, received_bytes] = sent_by(rank + ranks - 1);
    plan.per_rank[rank] += {sent, received, sent_bytes, received_bytes};
  }
}

// The begins of the shards of floats whose bytes are given.
std::vector<std::uint32_t> BeginsOf(std::span<const std::uint64_t> bytes) {
  std::vector<std::uint32_t> begins = {0};
  for (const std::uint64_t part : bytes) {
    begins.push_back(begins.back() + static_cast<std::uint32_t>(part / sizeof(float)));
  }
  return begins;
}

void AddRounds(const Shards& shards, const Topology& topology, std::span<const RingHalf> halves,
               std::size_t element_bytes, std::vector<Round>& rounds) {
  if (shards.members <= 1 || shards.elements == 0) return;
  for (const RingHalf& half : halves) {
    rounds.push_back(RoundOf(shards, half, topology, element_bytes));
  }
}

Shards EvenShards(std::size_t elements, const Topology& topology) {
  return {elements, static_cast<std::size_t>(topology.ranks)};
}

// Rank r sends every chunk twice, but r+1 and r+2 only once: the reduction of r+1 ends here, and
// the next rank has r+2 already.
constexpr RingHalf kAllReduceHalves[] = {{1, true}, {2, false}};

class Ring final : public CountedAsRing {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    return RunRingAllReduce(communicator, buffers.dense, tag);
  }
};

// One of the two halves, rotated so that shard j is reduced on, or comes from, rank j. Shards are
// even unless the exchange has parts of its own (ExchangeBuffers::part_begins).
template <bool kReduces>
class HalfRing final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    RequireHost(descriptor().name, communicator);
    const Place place(communicator, buffers.dense, buffers.part_begins);
    if (place.ranks == 1 || buffers.dense.empty()) co_return;
    if (kReduces) {
      co_await ReduceAround(communicator, place, place.rank + place.ranks - 1, tag);
    } else {
      co_await GatherAround(communicator, place, place.rank, tag);
    }
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    const RingHalf half{kReduces ? 0u : 1u, kReduces};
    Shards shards = EvenShards(sizes.payload_bytes.front() / sizeof(float), topology);
    std::vector<std::uint32_t> begins;
    if (!sizes.part_bytes.empty() && !sizes.part_bytes.front().empty()) {
      begins = BeginsOf(sizes.part_bytes.front());
      shards.begins = begins;
    }
    return RingRounds(shards, topology, {&half, 1});
  }
};

constexpr std::string_view kSource = "Patarasuk & Yuan, JPDC 2009";

}  // namespace

std::size_t Shards::NonEmpty() const {
  if (begins.empty()) return std::min(elements, members);
  std::size_t count = 0;
  for (std::size_t j = 0; j < members; ++j) count += Size(j) > 0 ? 1 : 0;
  return count;
}

std::size_t Shards::Largest() const {
  std::size_t largest = Size(0);
  for (std::size_t j = 1; !begins.empty() && j < members; ++j) largest = std::max(largest, Size(j));
  return largest;
}

std::size_t Shards::Smallest() const {
  std::size_t smallest = Size(members - 1);
  for (std::size_t j = 0; !begins.empty() && j < members; ++j)
    smallest = std::min(smallest, Size(j));
  return smallest;
}

Task StepAroundRing(Communicator& communicator, std::string_view collective,
                    std::span<const std::byte> outgoing, std::span<std::byte> incoming, int tag) {
  const int ranks = communicator.size();
  std::vector<std::unique_ptr<Request>> requests;
  if (!incoming.empty()) {
    const int previous = (communicator.rank() + ranks - 1) % ranks;
    requests.push_back(communicator.Irecv(previous, tag, incoming));
  }
  if (!outgoing.empty()) {
    const int next = (communicator.rank() + 1) % ranks;
    requests.push_back(communicator.Isend(next, tag, outgoing));
  }
  requests = co_await Complete(std::move(requests));
  if (!incoming.empty() && requests[0]->bytes() != incoming.size()) {
    SPARFUSE_THROW(kComm, collective, ": chunk of ", requests[0]->bytes(), " bytes from rank ",
                   requests[0]->peer(), ": expected ", incoming.size(),
                   "; ranks disagree on the length of the buffer");
  }
}

// The first P-1 steps leave chunk rank+1 reduced here; the others pass the reduced chunks on.
Task RunRingAllReduce(Communicator& communicator, std::span<float> data, int tag) {
  RequireHost("ring-allreduce", communicator);
  const Place place(communicator, data);
  if (place.ranks == 1 || data.empty()) co_return;
  co_await ReduceAround(communicator, place, place.rank, tag);
  co_await GatherAround(communicator, place, place.rank + 1, tag);
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

RoundPlan RingRounds(const Shards& shards, const Topology& topology,
                     std::span<const RingHalf> halves, std::size_t element_bytes) {
  RoundPlan plan;
  AddRounds(shards, topology, halves, element_bytes, plan.rounds);
  plan.per_rank.resize(shards.members);
  if (plan.rounds.empty()) return plan;
  for (const RingHalf& half : halves) AddTraffic(shards, half, element_bytes, plan);
  return plan;
}

RoundPlan RingAllReduceRounds(std::size_t elements, const Topology& topology) {
  return RingRounds(EvenShards(elements, topology), topology, kAllReduceHalves);
}

RoundPlan CountedAsRing::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  return RingAllReduceRounds(sizes.payload_bytes.front() / sizeof(float), topology);
}

bool CountedAsRing::AddEvenRounds(std::uint64_t payload_bytes, const Topology& topology,
                                  std::vector<Round>& rounds) const {
  const Shards shards = EvenShards(payload_bytes / sizeof(float), topology);
  AddRounds(shards, topology, kAllReduceHalves, sizeof(float), rounds);
  return true;
}

CollectiveDescriptor RingAllReduce() {
  return {.name = "ring-allreduce",
          .source = kSource,
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = MakePlain<Ring>,
          .of_library = true,
          .host_memory = true,
          .summary = "dense sums around a ring: reduce-scatter, then all-gather"};
}

const Collective& RingReduceScatter() {
  return OnlyOne<HalfRing<true>>("ring-reduce-scatter", kSource, PayloadKind::kDense);
}

const Collective& RingAllGather() {
  return OnlyOne<HalfRing<false>>("ring-allgather", kSource, PayloadKind::kDense);
}

}  // namespace sparfuse
