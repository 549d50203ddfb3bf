#include "core/transport/nccl/launch_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace sparfuse {
namespace {

std::string Started(LaunchOrder<char>& order) {
  std::string started;
  while (const char* next = order.Next()) {
    started += *next;
    order.Pop();
  }
  return started;
}

TEST(LaunchOrder, NothingPassesAProposal) {
  LaunchOrder<char> order;
  const Place a = order.Propose(1, 'a');
  const Place b = order.Propose(2, 'b');
  EXPECT_EQ(a.time, 1u);
  EXPECT_EQ(b.time, 2u);
  order.Settle(b, b);
  EXPECT_EQ(Started(order), "");
  order.Settle(a, {5, 1});  // its sender was ahead
  EXPECT_EQ(Started(order), "ba");
  EXPECT_EQ(order.Propose(1, 'c').time, 6u);
  EXPECT_EQ(order.Fix({2, 0}, 'd').time, 7u);  // never before what was started
}

TEST(LaunchOrder, ProposalAtTheTimeOfASettledMessageOfItsSenderGoesBehindIt) {
  LaunchOrder<char> order;
  const Place a = order.Propose(1, 'a');
  const Place b = order.Propose(1, 'b');
  order.Settle(a, {b.time, 1});
  EXPECT_EQ(Started(order), "a");
  order.Settle(b, {b.time + 1, 1});
  EXPECT_EQ(Started(order), "b");
}

TEST(LaunchOrder, CollectivesKeepTheirOrderAndHoldUpWhatWasProposedLater) {
  LaunchOrder<char> order;
  const Place a = order.Propose(1, 'a');
  EXPECT_EQ(order.Append('X', true), 0u);
  EXPECT_EQ(order.Append('Y', false), 1u);
  EXPECT_EQ(Started(order), "");
  order.Settle(a, a);
  EXPECT_EQ(Started(order), "aX");
  const Place b = order.Propose(1, 'b');  // between X and Y
  order.MarkReady(1);
  EXPECT_EQ(Started(order), "");
  order.Settle(b, b);
  EXPECT_EQ(Started(order), "bY");
}

TEST(LaunchOrder, MessageOfASenderBehindACollectiveWaitsForItHere) {
  LaunchOrder<char> sender;
  LaunchOrder<char> receiver;
  sender.Append('X', true);
  EXPECT_EQ(Started(sender), "X");
  const Place proposed = receiver.Propose(0, 'm');
  const Place fixed = sender.Fix(proposed, 'm');
  receiver.Settle(proposed, fixed);
  EXPECT_EQ(Started(receiver), "");
  receiver.Append('X', true);
  EXPECT_EQ(Started(receiver), "Xm");
}

// Ranks that post messages and collectives in orders of their own, notices that take their time,
// and streams as NCCL's: all that is posted ends.
TEST(LaunchOrder, StreamsNeverWaitForOneAnother) {
  struct Operation {
    int from = 0, to = 0;  // -1, -1: a collective
    int arrived = 0;       // ranks at whose stream's head it is
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
    const int ranks = 2 + below(4);
    std::vector<Operation> operations;
    std::vector<std::vector<int>> posts(static_cast<std::size_t>(ranks));
    for (int collective = 0; collective < 3; ++collective) {
      for (int i = below(6); i > 0; --i) {
        const int from = below(static_cast<std::size_t>(ranks));
        const int to = (from + 1 + below(static_cast<std::size_t>(ranks - 1))) % ranks;
        for (const int rank : {from, to}) {  // anywhere since the last collective
          auto& list = posts[static_cast<std::size_t>(rank)];
          std::size_t first = list.size();
          while (first > 0 && operations[static_cast<std::size_t>(list[first - 1])].from >= 0) {
            --first;
          }
          const auto at = first + static_cast<std::size_t>(below(list.size() - first + 1));
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(at),
                      static_cast<int>(operations.size()));
        }
        operations.push_back({from, to, 0});
      }
      for (auto& list : posts) list.push_back(static_cast<int>(operations.size()));
      operations.push_back({-1, -1, 0});
    }

    struct Rank {
      LaunchOrder<int> order;
      std::deque<int> stream;
      std::deque<std::function<void()>> post;
    };
    std::vector<Rank> world(static_cast<std::size_t>(ranks));
    const auto at = [&](int rank) -> Rank& { return world[static_cast<std::size_t>(rank)]; };
    // Notices between two ranks arrive in order.
    std::map<std::pair<int, int>, std::deque<std::function<void()>>> notices;
    std::vector<int> posted(operations.size(), 0);
    const auto accept = [&](int id) {
      const Operation o = operations[static_cast<std::size_t>(id)];
      const Place proposed = at(o.to).order.Propose(o.from, id);
      notices[{o.to, o.from}].push_back([&, o, id, proposed] {
        const Place fixed = at(o.from).order.Fix(proposed, id);
        notices[{o.from, o.to}].push_back(
            [&, o, proposed, fixed] { at(o.to).order.Settle(proposed, fixed); });
      });
    };
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int id : posts[static_cast<std::size_t>(rank)]) {
        at(rank).post.push_back([&, rank, id] {
          const Operation o = operations[static_cast<std::size_t>(id)];
          if (o.from < 0) {
            at(rank).order.Append(id, true);
          } else if (o.from == rank) {
            notices[{o.from, o.to}].push_back([&, id] {
              if (++posted[static_cast<std::size_t>(id)] == 2) accept(id);
            });
          } else if (++posted[static_cast<std::size_t>(id)] == 2) {
            accept(id);
          }
        });
      }
    }

    std::size_t ended = 0;
    int idle = 0;
    while (ended < operations.size() && idle < 2000) {
      ++idle;
      Rank& rank = at(below(static_cast<std::size_t>(ranks)));
      const auto step = [&](auto& queue) {
        if (queue.empty()) return;
        const auto act = std::move(queue.front());
        queue.pop_front();
        act();
        idle = 0;
      };
      if (below(3) == 0) step(rank.post);
      for (auto& [pair, queue] : notices) {
        if (below(2) == 0) step(queue);
      }
      while (const int* next = rank.order.Next()) {
        rank.stream.push_back(*next);
        rank.order.Pop();
      }
      // What is at the head of all its streams ends.
      for (std::size_t id = 0; id < operations.size(); ++id) {
        const Operation& o = operations[id];
        const auto heads = std::count_if(world.begin(), world.end(), [&](const Rank& r) {
          return !r.stream.empty() && r.stream.front() == static_cast<int>(id);
        });
        if (heads < (o.from < 0 ? ranks : 2)) continue;
        for (Rank& r : world) {
          if (!r.stream.empty() && r.stream.front() == static_cast<int>(id)) r.stream.pop_front();
        }
        ++ended;
        idle = 0;
      }
    }
    ASSERT_EQ(ended, operations.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sparfuse
