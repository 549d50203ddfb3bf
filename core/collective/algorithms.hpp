// Declares the descriptors that collective.cpp joins, one function for each algorithm's file, and
// helpers that the algorithms share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/collective/collective.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse {

CollectiveDescriptor RingAllReduce();
CollectiveDescriptor NativeAllReduce();
CollectiveDescriptor SparseAllGather();
CollectiveDescriptor NcclAllGather();
CollectiveDescriptor SharedIndicesAllReduce();
CollectiveDescriptor ParameterServer();
CollectiveDescriptor ExponentAllReduceDescriptor();

// CollectiveDescriptor::make of a collective without options.
template <class Kind>
std::unique_ptr<Collective> MakePlain(const Options& /*resolved*/) {
  return std::make_unique<Kind>();
}

// The only collective of its kind, on host memory and without options, which strategies request for
// a pattern: no method names it.
template <class Kind>
const Collective& OnlyOne(std::string_view name, std::string_view source, PayloadKind payload) {
  static const CollectiveDescriptor kDescriptor = {.name = name,
                                                   .source = source,
                                                   .revision = 1,
                                                   .payload = payload,
                                                   .make = MakePlain<Kind>,
                                                   .host_memory = true};
  static const auto kMade = MakeCollective(kDescriptor);
  return *kMade;
}

// Splits a range among the ranks of a group: member j owns shard j. Shard j of n elements in P
// parts has n/P + [j < n mod P], unless `begins` are given. Shard numbers are taken modulo P.
struct Shards {
  std::size_t elements;
  std::size_t members;
  // [members + 1] the begins of the shards, ascending, and the end of the last; they must outlive
  // this. Empty: even shards.
  std::span<const std::uint32_t> begins = {};

  std::size_t Size(std::size_t shard) const {
    const std::size_t j = shard % members;
    if (!begins.empty()) return begins[j + 1] - begins[j];
    return elements / members + (j < elements % members ? 1 : 0);
  }
  std::size_t Begin(std::size_t shard) const {
    const std::size_t j = shard % members;
    if (!begins.empty()) return begins[j];
    return j * (elements / members) + std::min(j, elements % members);
  }
  std::size_t NonEmpty() const;
  std::size_t Largest() const;
  std::size_t Smallest() const;
};

// Defined in ring_allreduce.cpp. Native all-reduces are counted by the same formula.
//   data  in place: own values in, sum over ranks out. Equal length on all ranks.
Task RunRingAllReduce(Communicator& communicator, std::span<float> data, int tag);
RoundPlan RingAllReduceRounds(std::size_t elements, const Topology& topology);
class CountedAsRing : public Collective {
 public:
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;
  bool AddEvenRounds(std::uint64_t payload_bytes, const Topology& topology,
                     std::vector<Round>& rounds) const override;
};

// Appends another exchange of the same ranks to a plan: its rounds and its traffic.
void AddRounds(const RoundPlan& next, RoundPlan& plan);

// Runs one step of a ring: every rank sends `outgoing` to the next rank and receives `incoming`. An
// empty buffer is not sent. Throws Error{kComm} naming the `collective` if the received size
// differs from the size of `incoming`. `collective` outlives the task.
Task StepAroundRing(Communicator& communicator, std::string_view collective,
                    std::span<const std::byte> outgoing, std::span<std::byte> incoming, int tag);

// Makes the round of `steps` ring steps, at most once around. In each step every rank sends to the
// next one. bytes: of the busiest rank in all steps. Ranks are in order around the ring: one hop
// leaves each node.
Round RingRound(std::size_t steps, std::uint64_t bytes, const Topology& topology);

// A half of a ring: rank r sends every chunk but r + skipped, and receives the chunks of rank
// r - 1. In every step each rank sends a different chunk, and the largest chunk sets the pace.
struct RingHalf {
  std::size_t skipped = 0;
  bool reduces = false;  // false: it gathers
};

// Counts the rounds of ring halves, one after another, in which the shards of all ranks travel.
// There are none for one rank or no elements.
RoundPlan RingRounds(const Shards& shards, const Topology& topology,
                     std::span<const RingHalf> halves, std::size_t element_bytes = sizeof(float));

// Defined in sparse_allgather.cpp. Throw Error{kInternal} if payload, capacity and room of a
// gathering `collective` do not match, Error{kComm} if another rank's payload has no whole
// elements.
void CheckGatherBuffers(std::string_view collective, const ExchangeBuffers& buffers,
                        std::size_t ranks);
void CheckPayloadBytes(std::string_view collective, const ExchangeBuffers& buffers,
                       std::size_t rank, std::size_t bytes);

// The slowest link among the ranks: a round ends with its last message.
inline LinkClass SlowestLink(const Topology& topology) {
  return topology.nodes() > 1 ? LinkClass::kInterNode : LinkClass::kIntraNode;
}

// Makes the rounds of an all-gather on N nodes of g ranks. First, ranks of equal local rank gather
// around rings between nodes, in N - 1 steps, all rings side by side. Then the ranks of a node
// gather these payloads of all nodes around a ring, in g - 1 steps. Each node receives every
// missing payload once: no all-gather brings less. (A ring through all ranks in order brings the
// payloads of g - 1 more ranks, in N g - 1 steps.) Only models use this; nothing here runs it.
//
//   bytes  [topology.ranks] the bytes of each rank's payload
//
// Source: R. Thakur, R. Rabenseifner & W. Gropp, IJHPCA 19(1), 2005 (ring); the order is that of
// core/cost/collective_choice.hpp. Throws Error{kUnsupported} if nodes hold unequal numbers of
// ranks.
RoundPlan TwoLevelAllGatherRounds(std::span<const std::uint64_t> bytes, const Topology& topology);
// Appends these rounds for equal payloads of all ranks (Collective::AddEvenRounds).
void AddEvenTwoLevelAllGatherRounds(std::uint64_t bytes, const Topology& topology,
                                    std::vector<Round>& rounds);

}  // namespace sparfuse
