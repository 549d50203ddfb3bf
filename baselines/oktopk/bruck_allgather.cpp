#include "baselines/oktopk/bruck_allgather.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "baselines/oktopk/node_bytes.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

// [2 P] where blocks 0, 1, ..., P - 1, 0, ..., P - 1 would begin, one after another.
std::vector<std::uint64_t> TwiceAround(std::span<const std::uint64_t> bytes) {
  std::vector<std::uint64_t> begins = {0};
  for (std::size_t i = 0; i + 1 < 2 * bytes.size(); ++i) {
    begins.push_back(begins.back() + bytes[i % bytes.size()]);
  }
  return begins;
}

}  // namespace

std::size_t BruckBlockBegin(std::span<const std::uint64_t> bytes, std::size_t rank,
                            std::size_t of) {
  std::size_t begin = 0;
  for (std::size_t block = rank; block != of; block = (block + 1) % bytes.size()) {
    begin += bytes[block];
  }
  return begin;
}

Task BruckAllGather(Communicator& communicator, std::span<const std::uint64_t> bytes,
                    std::span<std::byte> gathered, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const std::vector<std::uint64_t> begins = TwiceAround(bytes);
  const auto blocks = [&](std::size_t first, std::size_t count) {
    return gathered.subspan(begins[rank + first] - begins[rank],
                            begins[rank + first + count] - begins[rank + first]);
  };
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const std::size_t count = std::min(distance, ranks - distance);
    const std::span<std::byte> incoming = blocks(distance, count);
    const int next = static_cast<int>((rank + distance) % ranks);
    const int previous = static_cast<int>((rank + ranks - distance) % ranks);
    const auto requests = co_await Complete(communicator.Irecv(next, tag, incoming),
                                            communicator.Isend(previous, tag, blocks(0, count)));
    if (requests[0]->bytes() != incoming.size()) {
      SPARFUSE_THROW(kComm, "all-gather: " + std::to_string(requests[0]->bytes()) +
                                " bytes from rank " + std::to_string(requests[0]->peer()) +
                                ": expected " + std::to_string(incoming.size()));
    }
  }
}

void AddBruckRounds(std::span<const std::uint64_t> bytes, const Topology& topology,
                    RoundPlan& plan) {
  const std::size_t ranks = bytes.size();
  const std::vector<std::uint64_t> begins = TwiceAround(bytes);
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const std::size_t count = std::min(distance, ranks - distance);
    Round round;
    round.link = SlowestLink(topology);
    NodeBytes nodes(topology);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t previous = (rank + ranks - distance) % ranks;
      const std::uint64_t sent = begins[rank + count] - begins[rank];
      nodes.Add(rank, previous, sent);
      round.bytes = std::max(round.bytes, sent);
      plan.per_rank[rank] += {.messages_sent = 1, .bytes_sent = sent};
      plan.per_rank[previous] += {.messages_received = 1, .bytes_received = sent};
    }
    round.node_bytes = nodes.most();
    plan.rounds.push_back(round);
  }
}

}  // namespace sparfuse::baselines
