// Tests transport `shaped`: messages are never faster than their links.
#include "core/transport/shaped/shaped.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>

#include "core/collective/collective.hpp"
#include "core/transport/sleep.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

// A rate that a sanitizer's build on a busy machine can emulate, too.
constexpr double kGbps = kThreadSanitized ? 0.2 : 1.0;

using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
Wrap ShapedBy(const NetworkShape& shape) {
  return [shape](std::unique_ptr<Communicator> world) {
    return MakeShaped(std::move(world), shape, kDeadline);
  };
}

TEST(Shaped, RefusesWhatItCannotEmulate) {
  for (const LinkShape shape :
       {LinkShape{0, 1e-3}, LinkShape{-1, 1e-3}, LinkShape{NAN, 1e-3}, LinkShape{1e-300, 1e-3},
        LinkShape{1e300, 1e-3}, LinkShape{1, 1e300}, LinkShape{1, 99e-6}, LinkShape{1, 0},
        LinkShape{1, NAN}}) {
    for (const NetworkShape& network :
         {NetworkShape{shape}, NetworkShape{LinkShape{1, 1e-3}, shape}}) {
      SCOPED_TRACE(::testing::Message() << shape.gbps << " " << shape.alpha_seconds);
      ExpectError(FailureKind::kConfig, {}, [&] {
        auto world = MakeThreadsWorld(1, 1);
        (void)MakeShaped(std::move(world[0]), network, kDeadline);
      });
    }
  }
}

TEST(Shaped, RefusesNodesOfSeveralRanksWithoutALinkWithinThem) {
  auto world = MakeThreadsWorld(1, 2);
  ExpectError(FailureKind::kConfig, {"2 ranks per node without a link within nodes"}, [&] {
    (void)MakeShaped(std::move(world[0]), {LinkShape{1, 1e-3}}, kDeadline);
  });
}

TEST(Shaped, RefusesWhatThisHostIsTooSlowFor) {
  const LinkShape slow{1, 1e-3};
  const LinkShape fast{1e6, 1e-3};  // a petabit a second
  for (const auto& [shape, ranks_per_node] :
       {std::pair(NetworkShape{fast}, 1), std::pair(NetworkShape{slow, fast}, 2)}) {
    ExpectError(FailureKind::kUnsupported,
                {"1e+06 Gbit/s per rank while all 2 send at once; this "
                 "host passed on "},
                [&] {
                  RunRanks(
                      2, ranks_per_node, kDeadline, [](ProgressLoop&) {}, ShapedBy(shape));
                });
  }
}

TEST(Shaped, RingIsRightAndCountsPayloadsOnly) {
  const LinkShape shape{kGbps, 100e-6};
  RunRanks(
      3, 1, kDeadline,
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
      ShapedBy({shape}));
}

// The seconds until `make` ends on this rank. They begin before any rank can have started `make`,
// since all ranks pass a barrier first.
double SecondsOfAll(ProgressLoop& loop, const ProgressLoop::Make& make) {
  const auto start = std::chrono::steady_clock::now();
  loop.RunBlocking([](Communicator& world) { return Barrier(world, 1); });
  loop.RunBlocking(make);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Checks lower bounds only: a busy machine may be slower than the link, never faster.
TEST(Shaped, IsNeverFasterThanTheLink) {
  const LinkShape shape{kGbps, 500e-6};
  constexpr std::size_t kBytes = 2'000'000;
  const double link_seconds = 8.0 * kBytes / (1e9 * kGbps);
  RunRanks(
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
        // A ping-pong pays the latency each way. Rank 0's first message need not wait for the
        // barrier: rank 1's barrier message may have arrived before rank 0 read its clock.
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
      ShapedBy({shape}));
}

TEST(Shaped, ReceiverCardIsSharedBySendersAndSplitCommunicators) {
  const LinkShape shape{kGbps, 100e-6};
  constexpr std::size_t kBytes = 1'000'000;
  RunRanks(
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
          EXPECT_GE(seconds, 2 * 8.0 * kBytes / (1e9 * kGbps));
        }
        loop.RunBlocking([&](Communicator&) {
          other.reset();
          return Task();
        });
      },
      ShapedBy({shape}));
}

// --- two levels ----------------------------------------------------------------------------------

const NetworkShape kTwoLevels{LinkShape{kGbps / 2, 300e-6}, LinkShape{kGbps / 2, 100e-6}};

ProgressLoop::Make Send(int to, std::size_t bytes) {
  return [=](Communicator& world) -> Task {
    const std::vector<std::byte> out(bytes);
    co_await Complete(world.Isend(to, 0, out));
  };
}
ProgressLoop::Make Receive(int from, std::size_t bytes) {
  return [=](Communicator& world) -> Task {
    std::vector<std::byte> in(bytes);
    co_await Complete(world.Irecv(from, 0, in));
  };
}

constexpr std::size_t kMegabyte = 1'000'000;
constexpr double kBetween = 16e-3 / kGbps;  // seconds of a megabyte between nodes

// Ranks 0 and 1 share a card on the way out, ranks 2 and 3 on the way in. The later of two messages
// arrives after two durations.
TEST(ShapedTwoLevels, RanksOfANodeThatSendAtOnceShareItsCard) {
  std::array<std::array<double, 4>, 3> seconds{};  // of each rank, three times
  RunRanks(
      4, 2, kDeadline,
      [&](ProgressLoop& loop) {
        const int rank = loop.rank();
        for (auto& each : seconds) {
          each[static_cast<std::size_t>(rank)] = SecondsOfAll(
              loop, rank < 2 ? Send(rank + 2, kMegabyte) : Receive(rank - 2, kMegabyte));
        }
      },
      ShapedBy(kTwoLevels));
  for (const auto& [a, b, c, d] : seconds) {
    EXPECT_GE(std::max(a, b), 2 * kBetween);
    EXPECT_GE(std::min(c, d), kBetween + 300e-6);
    EXPECT_GE(std::max(c, d), 2 * kBetween + 300e-6);
  }
}

TEST(ShapedTwoLevels, SplitGroupsUseTheWorldsLinksAndCountByClass) {
  RunRanks(
      4, 2, kDeadline,
      [&](ProgressLoop& loop) {
        std::unique_ptr<Communicator> columns;  // {0, 2} and {1, 3}
        std::unique_ptr<Communicator> node;
        loop.RunBlocking([&](Communicator& world) {
          EXPECT_EQ(world.topology(), (Topology{4, 2}));
          columns = world.Split(loop.rank() % 2, loop.rank(), kDeadline);
          node = world.Split(loop.rank() / 2, loop.rank(), kDeadline);
          return Task();
        });
        EXPECT_EQ(columns->topology(), (Topology{2, 1}));
        EXPECT_EQ(node->topology(), (Topology{2, 2}));
        std::vector<std::byte> out(kMegabyte);
        std::vector<std::byte> in(kMegabyte);
        const auto swap = [&](Communicator& group) -> Task {
          const int peer = 1 - group.rank();
          co_await Complete(group.Irecv(peer, 0, in), group.Isend(peer, 0, out));
        };
        // Both columns cross at once, but each node has one card: its later message waits for the
        // other.
        const std::int64_t start = MonotonicNanoseconds();
        loop.RunBlocking([](Communicator& world) { return Barrier(world, 1); });
        loop.RunBlocking([&](Communicator&) { return swap(*columns); });
        loop.RunBlocking([](Communicator& world) { return Barrier(world, 1); });
        EXPECT_GE(MonotonicNanoseconds() - start, 2e9 * kBetween);
        loop.RunBlocking([&](Communicator&) { return swap(*node); });
        const auto between = static_cast<std::size_t>(LinkClass::kInterNode);
        const auto within = static_cast<std::size_t>(LinkClass::kIntraNode);
        EXPECT_EQ(columns->traffic()[between], (Traffic{1, 1, kMegabyte, kMegabyte}));
        EXPECT_EQ(columns->traffic()[within], Traffic{});
        EXPECT_EQ(node->traffic()[within], (Traffic{1, 1, kMegabyte, kMegabyte}));
        EXPECT_EQ(node->traffic()[between], Traffic{});
        loop.RunBlocking([&](Communicator&) {
          columns.reset();
          node.reset();
          return Task();
        });
      },
      ShapedBy(kTwoLevels));
}

TEST(Shaped, LostRankIsAnError) {
  auto worlds = MakeThreadsWorld(2, 1);
  const NetworkShape shape{LinkShape{kGbps, 1e-3}};
  auto other = std::async(std::launch::async,
                          [&] { return MakeShaped(std::move(worlds[1]), shape, kDeadline); });
  auto shaped = MakeShaped(std::move(worlds[0]), shape, kDeadline);
  int value = 0;
  const auto receive = shaped->Irecv(1, 0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_FALSE(receive->Test());
  other.get().reset();
  EXPECT_THROW(receive->Test(), Error);
}

}  // namespace
}  // namespace sparfuse::testing
