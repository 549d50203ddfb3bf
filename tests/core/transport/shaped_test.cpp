// Tests transport `shaped`: its schedule of a link, and that it is never faster than the link.
#include "core/transport/shaped.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "core/transport/link_schedule.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse {
namespace {

constexpr std::chrono::milliseconds kDeadline{60'000};

using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
Wrap ShapedBy(LinkShape shape) {
  return
      [shape](std::unique_ptr<Communicator> world) { return MakeShaped(std::move(world), shape); };
}

// --- LinkSchedule: plain numbers, no clock ---------------------------------------------------

TEST(LinkSchedule, IsFirstInFirstOutByArrival) {
  LinkSchedule link;
  const auto a = link.Add(100, 50);
  const auto b = link.Add(120, 10);
  const auto c = link.Add(200, 5);
  EXPECT_EQ(link.EndOf(a), 150);
  EXPECT_EQ(link.EndOf(b), 160);
  EXPECT_EQ(link.EndOf(c), 205);
}

TEST(LinkSchedule, OrderOfKnowledgeDoesNotMatterBeforeDelivery) {
  LinkSchedule link;
  const auto far = link.Add(1000, 100);
  const auto late = link.Add(500, 600);  // known later, arrives earlier
  EXPECT_EQ(link.EndOf(late), 1100);
  EXPECT_EQ(link.EndOf(far), 1200);
  link.Remove(late);
  EXPECT_EQ(link.EndOf(far), 1100);
}

TEST(LinkSchedule, LatePostedReceiveUsesTheTimeInWhichTheLinkWasFree) {
  LinkSchedule link;
  const auto big = link.Add(1000, 1000);
  link.MarkDelivered(big);
  EXPECT_EQ(link.EndOf(link.Add(500, 100)), 600);    // had passed before
  EXPECT_EQ(link.EndOf(link.Add(1500, 100)), 2100);  // had to wait
}

TEST(LinkSchedule, NeverCarriesTwoMessagesAtOnce) {
  LinkSchedule link;
  std::vector<std::pair<std::int64_t, std::int64_t>> busy;
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % below);
  };
  std::vector<std::pair<std::uint64_t, std::int64_t>> waiting;  // id, duration
  std::int64_t now = 0;
  for (int i = 0; i < 2000; ++i) {
    now += random(40);
    const std::int64_t duration = 1 + random(50);
    const std::int64_t arrival = now - 100 + random(300);
    const auto id = link.Add(arrival, duration);
    EXPECT_GE(link.EndOf(id), arrival + duration);
    waiting.emplace_back(id, duration);
    std::erase_if(waiting, [&](const auto& message) {
      const std::int64_t end = link.EndOf(message.first);
      if (end > now) return false;
      busy.emplace_back(end - message.second, end);
      link.MarkDelivered(message.first);
      return true;
    });
  }
  ASSERT_GT(busy.size(), 1000u);
  std::sort(busy.begin(), busy.end());
  for (std::size_t i = 1; i < busy.size(); ++i) EXPECT_GE(busy[i].first, busy[i - 1].second);
}

// --- over threads ------------------------------------------------------------------------------

TEST(Shaped, RefusesWhatItCannotEmulate) {
  for (const LinkShape shape :
       {LinkShape{0, 1e-3}, LinkShape{-1, 1e-3}, LinkShape{NAN, 1e-3}, LinkShape{1e-300, 1e-3},
        LinkShape{1e300, 1e-3}, LinkShape{1, 1e300}, LinkShape{1, 99e-6}, LinkShape{1, 0},
        LinkShape{1, NAN}}) {
    try {
      auto world = MakeThreadsWorld(1, 1);
      (void)MakeShaped(std::move(world[0]), shape);
      ADD_FAILURE() << shape.gbps << " " << shape.alpha_seconds;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kConfig);
    }
  }
}

TEST(Shaped, RingIsRightAndCountsPayloadsOnly) {
  const LinkShape shape{1.0, 100e-6};
  testing::RunRanks(
      3, 2, kDeadline,
      [&](ProgressLoop& loop) {
        std::vector<float> data(1000, static_cast<float>(loop.rank()));
        ExchangeBuffers buffers;
        buffers.dense = data;
        TrafficByLink traffic;
        loop.RunBlocking([&](Communicator& world) -> Task {
          EXPECT_EQ(world.backend(), "shaped");
          EXPECT_FALSE(world.has_native_all_reduce());
          EXPECT_EQ(world.topology(), (Topology{3, 1}));
          co_await CoreCollective("ring-allreduce")->Run(world, buffers, 0);
          traffic = world.traffic();
        });
        EXPECT_EQ(data, std::vector<float>(1000, 3.0f));
        const RoundPlan plan =
            CoreCollective("ring-allreduce")->Rounds(SizesOf({4000, 4000, 4000}), Topology{3, 1});
        EXPECT_EQ(traffic[static_cast<std::size_t>(LinkClass::kInterNode)],
                  plan.per_rank[static_cast<std::size_t>(loop.rank())]);
      },
      ShapedBy(shape));
}

// Seconds from before the other ranks can have started `make` (they pass a barrier first) to its
// end here.
double SecondsOfAll(ProgressLoop& loop, const ProgressLoop::Make& make) {
  const auto start = std::chrono::steady_clock::now();
  loop.RunBlocking([](Communicator& world) { return Barrier(world, 1); });
  loop.RunBlocking(make);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Lower bounds only: a busy machine may be slower than the link, never faster.
TEST(Shaped, IsNeverFasterThanTheLink) {
  const LinkShape shape{1.0, 500e-6};
  constexpr std::size_t kBytes = 2'000'000;
  const double link_seconds = 8.0 * kBytes / 1e9;
  testing::RunRanks(
      2, 1, kDeadline,
      [&](ProgressLoop& loop) {
        std::vector<std::byte> out(kBytes);
        std::vector<std::byte> in(kBytes);
        std::vector<std::byte> also_in(kBytes);
        const int peer = 1 - loop.rank();
        // The barrier costs one latency, the message another.
        EXPECT_GE(SecondsOfAll(loop,
                               [&](Communicator& world) -> Task {
                                 co_await Complete(world.Irecv(peer, 0, in),
                                                   world.Isend(peer, 0, out));
                               }),
                  2 * shape.alpha_seconds + link_seconds);
        // Two messages queue up on the card, whatever their tags.
        EXPECT_GE(SecondsOfAll(loop,
                               [&](Communicator& world) -> Task {
                                 co_await Complete(
                                     world.Isend(peer, 0, out), world.Isend(peer, 3, out),
                                     world.Irecv(peer, 0, in), world.Irecv(peer, 3, also_in));
                               }),
                  2 * shape.alpha_seconds + 2 * link_seconds);
        // A ping-pong pays the latency each way; rank 0's first message need not wait for the
        // barrier, whose message from rank 1 may have come before rank 0 took the time.
        const double seconds = SecondsOfAll(loop, [&](Communicator& world) -> Task {
          const auto message = std::span(out).first(8);
          for (int i = 0; i < 20; ++i) {
            if (i % 2 == loop.rank()) {
              co_await Complete(world.Isend(peer, 0, message));
            } else {
              co_await Complete(world.Irecv(peer, 0, message));
            }
          }
        });
        if (loop.rank() == 0) {
          EXPECT_GE(seconds, 20 * shape.alpha_seconds);
        }
      },
      ShapedBy(shape));
}

TEST(Shaped, ReceiverCardIsSharedBySendersAndSplitCommunicators) {
  const LinkShape shape{1.0, 100e-6};
  constexpr std::size_t kBytes = 1'000'000;
  testing::RunRanks(
      3, 1, kDeadline,
      [&](ProgressLoop& loop) {
        std::unique_ptr<Communicator> other;
        loop.RunBlocking([&](Communicator& world) {
          other = world.Split(0, loop.rank(), kDeadline);
          return Task();
        });
        std::vector<std::byte> from(kBytes);
        std::vector<std::byte> to(kBytes);
        const double seconds = SecondsOfAll(loop, [&](Communicator& world) -> Task {
          if (loop.rank() == 0) {
            co_await Complete(world.Irecv(1, 0, from), other->Irecv(2, 0, to));
          } else {
            Communicator& mine = loop.rank() == 1 ? world : *other;
            co_await Complete(mine.Isend(0, 0, from));
          }
        });
        if (loop.rank() == 0) {
          EXPECT_GE(seconds, 2 * 8.0 * kBytes / 1e9);
        }
        loop.RunBlocking([&](Communicator&) {
          other.reset();
          return Task();
        });
      },
      ShapedBy(shape));
}

TEST(Shaped, LostRankIsAnError) {
  auto worlds = MakeThreadsWorld(2, 1);
  auto shaped = MakeShaped(std::move(worlds[0]), {1.0, 1e-3});
  int value = 0;
  const auto receive = shaped->Irecv(1, 0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_FALSE(receive->Test());
  worlds[1].reset();
  EXPECT_THROW(receive->Test(), Error);
}

}  // namespace
}  // namespace sparfuse
