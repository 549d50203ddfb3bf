#include "core/transport/group.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

void CheckAddress(int peer, int size, int tag) {
  if (peer < 0 || peer >= size) {
    SPARFUSE_THROW(kInternal, "message to or from rank ", peer, " in a group of ", size);
  }
  if (tag < 0 || tag >= (1 << 15)) {
    SPARFUSE_THROW(kInternal, "message with tag ", tag, ": expected a tag in [0, 32768)");
  }
}

void RequireRanksPerNode(std::string_view transport, int ranks_per_node) {
  SPARFUSE_REQUIRE(ranks_per_node >= 1, transport, ": ", ranks_per_node,
                   " ranks per node: expected at least 1");
}

std::vector<int> AllRanks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void AwaitPeers(Communicator& communicator, std::span<const std::unique_ptr<Request>> receives,
                std::span<const std::unique_ptr<Request>> sends, std::chrono::milliseconds deadline,
                std::string_view what) {
  const auto expires = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    std::string missing;
    bool sent = true;
    for (const auto& receive : receives) {
      if (!receive->Test()) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(receive->peer());
      }
    }
    for (const auto& send : sends) sent = send->Test() && sent;
    if (missing.empty() && sent) return;
    if (std::chrono::steady_clock::now() > expires) {
      SPARFUSE_THROW(kTimeout, what, ": rank ", missing, " did not arrive within ",
                     deadline.count(), " ms");
    }
    communicator.Idle(std::chrono::microseconds(100));
  }
}

SplitGroup ComputeSplit(const Topology& parent, int rank, std::span<const SplitChoice> choices) {
  const int color = choices[static_cast<std::size_t>(rank)].color;
  SPARFUSE_REQUIRE(color >= 0, "split: color ", color, " is negative");
  SplitGroup group;
  for (int r = 0; r < parent.ranks; ++r) {
    if (choices[static_cast<std::size_t>(r)].color == color) group.members.push_back(r);
  }
  std::stable_sort(group.members.begin(), group.members.end(), [&](int a, int b) {
    return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
  });
  const auto& members = group.members;
  group.rank = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());

  const int first_node = parent.NodeOf(members[0]);
  group.topology.ranks = static_cast<int>(members.size());
  group.topology.ranks_per_node = static_cast<int>(std::count_if(
      members.begin(), members.end(), [&](int r) { return parent.NodeOf(r) == first_node; }));
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (parent.LinkBetween(members[i], members[j]) !=
          group.topology.LinkBetween(static_cast<int>(i), static_cast<int>(j))) {
        SPARFUSE_THROW(kConfig, "split: the ranks of color ", color,
                       " cannot be numbered node by node: rank ", members[i], " is on node ",
                       parent.NodeOf(members[i]),
                       "; give equally many ranks of every node, in node order");
      }
    }
  }
  return group;
}

}  // namespace sparfuse
