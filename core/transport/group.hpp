// Provides the checks and computations on groups of ranks that all transports share.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/transport/communicator.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// Throws Error{kInternal} unless 0 <= peer < size and 0 <= tag < 2^15.
void CheckAddress(int peer, int size, int tag);

// Throws Error{kConfig} naming the transport unless ranks_per_node >= 1.
void RequireRanksPerNode(std::string_view transport, int ranks_per_node);

// The ranks of a world: 0, 1, ... ranks - 1.
std::vector<int> AllRanks(int ranks);

// Waits until all set-up messages of a group are received and sent. Throws Error{kTimeout} past the
// deadline, "WHAT: rank 1, 3 did not arrive within 500 ms".
void AwaitPeers(Communicator& communicator, std::span<const std::unique_ptr<Request>> receives,
                std::span<const std::unique_ptr<Request>> sends, std::chrono::milliseconds deadline,
                std::string_view what);

// Returns [size] the `own` of each rank. Collective over a group; waits up to the deadline of
// AwaitPeers. send(peer, bytes) and receive(peer, bytes) start the messages.
template <class T, class Send, class Receive>
std::vector<T> GatherFromPeers(Communicator& group, const T& own,
                               std::chrono::milliseconds deadline, std::string_view what,
                               const Send& send, const Receive& receive) {
  std::vector<T> all(static_cast<std::size_t>(group.size()), own);
  std::vector<std::unique_ptr<Request>> receives;
  std::vector<std::unique_ptr<Request>> sends;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    const auto theirs = std::span(all).subspan(static_cast<std::size_t>(peer), 1);
    receives.push_back(receive(peer, std::as_writable_bytes(theirs)));
    sends.push_back(send(peer, std::as_bytes(std::span(&own, 1))));
  }
  AwaitPeers(group, receives, sends, deadline, what);
  return all;
}

// The same with the group's own messages, of tag 0.
template <class T>
std::vector<T> GatherFromPeers(Communicator& group, const T& own,
                               std::chrono::milliseconds deadline, std::string_view what) {
  return GatherFromPeers(
      group, own, deadline, what,
      [&](int peer, std::span<const std::byte> bytes) { return group.Isend(peer, 0, bytes); },
      [&](int peer, std::span<std::byte> bytes) { return group.Irecv(peer, 0, bytes); });
}

struct SplitChoice {
  int color = 0;
  int key = 0;
};

// The group that `rank` joins if rank r of the parent chose choices[r].
struct SplitGroup {
  std::vector<int> members;  // ranks of the parent, in the order of the group
  int rank = 0;              // of the caller, in the group
  Topology topology;
};

// Throws Error{kConfig} if the caller's color is negative, or if the group cannot be numbered node
// by node with equally many ranks on every node but the last.
SplitGroup ComputeSplit(const Topology& parent, int rank, std::span<const SplitChoice> choices);

// A communicator that knows the world ranks of its members, and counts its traffic with each of
// them.
class GroupCommunicator : public Communicator {
 public:
  // world_ranks: the members' ranks in the world.
  GroupCommunicator(std::vector<int> world_ranks, int rank, const Topology& topology)
      : world_ranks_(std::move(world_ranks)), rank_(rank), topology_(topology) {}

  int rank() const noexcept final { return rank_; }
  int size() const noexcept final { return topology_.ranks; }
  const Topology& topology() const noexcept final { return topology_; }
  const TrafficByLink& traffic() const noexcept final { return traffic_; }

 protected:
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int WorldRank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  std::vector<int> WorldRanks(std::vector<int> ranks) const {
    for (int& rank : ranks) rank = WorldRank(rank);
    return ranks;
  }
  Traffic& TrafficWith(int peer) {
    return traffic_[static_cast<std::size_t>(topology_.LinkBetween(rank_, peer))];
  }
  Traffic& CountSent(int destination, std::size_t bytes) {
    Traffic& traffic = TrafficWith(destination);
    ++traffic.messages_sent;
    traffic.bytes_sent += bytes;
    return traffic;
  }

 private:
  std::vector<int> world_ranks_;
  int rank_;
  Topology topology_;
  TrafficByLink traffic_{};
};

}  // namespace sparfuse
