// Declares the descriptors that collective.cpp joins, one function for each algorithm's file, and
// what the algorithms share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// Splits a range among the ranks of a group, shard j being member j's: n elements in P parts of n/P
// + [j < n mod P]. Numbers of parts are taken modulo P.
struct Shards {
  std::size_t elements;
  std::size_t members;

  std::size_t Size(std::size_t shard) const {
    return elements / members + (shard % members < elements % members ? 1 : 0);
  }
  std::size_t Begin(std::size_t shard) const {
    const std::size_t j = shard % members;
    return j * (elements / members) + std::min(j, elements % members);
  }
  std::size_t NonEmpty() const { return std::min(elements, members); }
};

// ring_allreduce.cpp. Also the formula by which native all-reduces are counted.
//   data  in place: own values in, sum over ranks out; equal length on all ranks.
Task RunRingAllReduce(Communicator& communicator, std::span<float> data, int tag);
RoundPlan RingAllReduceRounds(std::size_t elements, const Topology& topology);
void AddEvenRingAllReduceRounds(std::size_t elements, const Topology& topology,
                                std::vector<Round>& rounds);

// A step of a ring, in which every rank sends `outgoing` to the next one and takes in `incoming`;
// nothing is sent of what is empty. Throws Error{kComm} naming the `collective`, which outlives the
// task, when as many bytes do not come.
Task StepAroundRing(Communicator& communicator, std::string_view collective,
                    std::span<const std::byte> outgoing, std::span<std::byte> incoming, int tag);

// `steps` of a ring, at most one time around it, in each of which every rank sends to the next one;
// bytes: of the busiest rank in all of them. Ranks are in order around the ring: one hop leaves
// each node.
Round RingRound(std::size_t steps, std::uint64_t bytes, const Topology& topology);

// A half of a ring, in which rank r sends every chunk but r + skipped, and receives what rank r-1
// sends. In every step the ranks send all chunks, each another one, of which the largest sets the
// pace.
struct RingHalf {
  std::size_t skipped = 0;
  bool reduces = false;  // else it gathers
};

// Counts the halves of a ring, one after another, in which `elements` travel in chunks. None for
// one rank, and for no elements.
RoundPlan RingRounds(std::size_t elements, const Topology& topology,
                     std::span<const RingHalf> halves, std::size_t element_bytes = sizeof(float));

// sparse_allgather.cpp. Throw Error{kInternal} when payload, capacity and room of a gathering
// `collective` do not fit one another, Error{kComm} when another rank's payload has no whole
// elements.
void CheckGatherBuffers(std::string_view collective, const ExchangeBuffers& buffers,
                        std::size_t ranks);
void CheckPayloadBytes(std::string_view collective, const ExchangeBuffers& buffers,
                       std::size_t rank, std::size_t bytes);

// The slowest link among the ranks: a round ends with its last message.
inline LinkClass SlowestLink(const Topology& topology) {
  return topology.nodes() > 1 ? LinkClass::kInterNode : LinkClass::kIntraNode;
}

// On N nodes of g ranks: ranks of equal local rank gather around rings between nodes, N - 1 steps,
// all these rings side by side; then the ranks of a node gather around a ring what each of them has
// of all nodes, g - 1 steps. Into a node comes what it lacks, once: no all-gather brings less. (A
// ring through all ranks in order brings the payloads of g - 1 ranks more, in N g - 1 steps.) For
// models: nothing here runs it.
//
//   bytes  [topology.ranks] of each rank's payload
//
// Source: R. Thakur, R. Rabenseifner & W. Gropp, IJHPCA 19(1), 2005 (ring); the order is that of
// core/cost/collective_choice.hpp. Throws Error{kUnsupported} where nodes hold unequal numbers of
// ranks.
RoundPlan TwoLevelAllGatherRounds(std::span<const std::uint64_t> bytes, const Topology& topology);
// Those where every rank has as many bytes (EvenCollective).
void AddEvenTwoLevelAllGatherRounds(std::uint64_t bytes, const Topology& topology,
                                    std::vector<Round>& rounds);

}  // namespace sparfuse
