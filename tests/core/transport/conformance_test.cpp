// Tests the laws of every transport in host memory whose ranks may be in one process: order,
// counts, splits, lost or stalled ranks, collectives, and the ProgressLoop over it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <string>
#include <thread>

#include "core/collective/collective.hpp"
#include "core/transport/shaped/shaped.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using std::chrono::milliseconds;
using Worlds = std::vector<std::unique_ptr<Communicator>>;

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  static Worlds Make(int ranks, int ranks_per_node) {
    return GetParam() == "tcp" ? MakeTcpWorlds(ranks, ranks_per_node)
                               : MakeThreadsWorld(ranks, ranks_per_node);
  }
  static void Await(Communicator& communicator, Request& request) {
    while (!request.Test()) communicator.Idle(milliseconds(1));
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, ::testing::Values("threads", "tcp"),
                         [](const auto& instance) { return instance.param; });

TEST_P(Conformance, MessagesWithEqualTagKeepTheirOrder) {
  // Below and above the size that a transport may send before the receive is posted.
  for (const std::size_t numbers : {1, 300'000}) {
    auto world = Make(2, 1);
    std::vector<std::vector<int>> sent;
    for (const int value : {10, 11, 20, 12}) sent.emplace_back(numbers, value);
    std::vector<std::unique_ptr<Request>> sends;
    for (const auto& message : sent) {
      sends.push_back(
          world[0]->Isend(1, message[0] >= 20 ? 2 : 1, std::as_bytes(std::span(message))));
    }
    std::vector<int> received;
    for (const int tag : {2, 1, 1, 1}) {
      std::vector<int> message(numbers);
      const auto receive = world[1]->Irecv(0, tag, std::as_writable_bytes(std::span(message)));
      while (!receive->Test()) {
        for (const auto& send : sends) send->Test();
        world[1]->Idle(milliseconds(1));
      }
      EXPECT_EQ(receive->bytes(), numbers * sizeof(int));
      EXPECT_EQ(message.front(), message.back());
      received.push_back(message.front());
    }
    for (const auto& send : sends) Await(*world[0], *send);
    EXPECT_EQ(received, (std::vector{20, 10, 11, 12}));
  }
}

TEST_P(Conformance, EmptyMessagesAndMessagesToOneselfArrive) {
  auto world = Make(2, 1);
  int value = 7;
  int received = 0;
  const auto own = world[0]->Isend(0, 3, Bytes(value));
  const auto from_own = world[0]->Irecv(0, 3, Room(received));
  Await(*world[0], *from_own);
  Await(*world[0], *own);
  EXPECT_EQ(received, 7);
  const auto empty = world[0]->Isend(1, 3, {});
  const auto nothing = world[1]->Irecv(0, 3, Room(received));
  Await(*world[1], *nothing);
  Await(*world[0], *empty);
  EXPECT_EQ(nothing->bytes(), 0u);
}

TEST_P(Conformance, CountsTrafficByLink) {
  auto world = Make(4, 2);
  std::array<std::byte, 100> from{};
  std::array<std::byte, 200> to{};
  for (const int peer : {1, 2, 2}) {
    auto& other = *world[static_cast<std::size_t>(peer)];
    const auto send = world[0]->Isend(peer, 0, from);
    const auto receive = other.Irecv(0, 0, to);
    Await(other, *receive);
    EXPECT_TRUE(receive->Test());
    EXPECT_EQ(receive->bytes(), 100u);
    Await(*world[0], *send);
  }
  EXPECT_EQ(world[0]->traffic(), (TrafficByLink{Traffic{1, 0, 100, 0}, Traffic{2, 0, 200, 0}}));
  EXPECT_EQ(world[2]->traffic(), (TrafficByLink{Traffic{}, Traffic{0, 2, 0, 200}}));
}

TEST_P(Conformance, MessageLargerThanTheBufferIsAnError) {
  auto world = Make(2, 1);
  const double large = 1;
  std::int32_t small = 7;
  const auto send = world[0]->Isend(1, 0, Bytes(large));
  const auto receive = world[1]->Irecv(0, 0, Room(small));
  EXPECT_EQ(FailureOf([&] { Await(*world[1], *receive); }),
            "comm: message of 8 bytes from rank 0: expected at most 4");
  EXPECT_EQ(small, 7);
}

TEST_P(Conformance, RequestTakenBackLeavesOthersAsTheyWere) {
  auto world = Make(2, 1);
  int value = 1;
  int received = 0;
  world[1]->Irecv(0, 0, Room(value)).reset();
  const auto send = world[0]->Isend(1, 0, Bytes(value));
  const auto receive = world[1]->Irecv(0, 0, Room(received));
  Await(*world[1], *receive);
  Await(*world[0], *send);
  EXPECT_EQ(received, 1);
}

TEST_P(Conformance, LostRankFailsWhatIsPendingAndWhatComesLater) {
  auto world = Make(3, 1);
  int value = 0;
  const auto receive = world[0]->Irecv(2, 0, Room(value));
  const auto other = world[1]->Irecv(2, 0, Room(value));
  const auto unrelated = world[0]->Irecv(1, 0, Room(value));
  EXPECT_FALSE(receive->Test());
  world[2].reset();
  EXPECT_EQ(FailureOf([&] { Await(*world[0], *receive); }), "comm: rank 2 is lost");
  EXPECT_EQ(FailureOf([&] { Await(*world[1], *other); }), "comm: rank 2 is lost");
  const auto later = world[0]->Irecv(2, 0, Room(value));
  EXPECT_EQ(FailureOf([&] { Await(*world[0], *later); }), "comm: rank 2 is lost");
  EXPECT_FALSE(unrelated->Test());
}

TEST_P(Conformance, IdleReturnsWhenAnOperationEndsAndWhenWoken) {
  auto world = Make(2, 1);
  int value = 3;
  int received = 0;
  const auto receive = world[1]->Irecv(0, 0, Room(received));
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(20));
    const auto send = world[0]->Isend(1, 0, Bytes(value));
    while (!send->Test()) std::this_thread::yield();
  });
  while (!receive->Test()) world[1]->Idle(std::chrono::hours(24));
  EXPECT_EQ(received, 3);
  sender.join();
  world[1]->Wake();
  world[1]->Idle(std::chrono::hours(24));
  std::thread waker([&] { world[1]->Wake(); });
  world[1]->Idle(std::chrono::hours(24));
  waker.join();
}

TEST_P(Conformance, SplitNumbersByKeyAndKeepsMessagesApart) {
  auto world = Make(6, 2);
  OnThreads(6, [&](std::size_t number) {
    const int rank = static_cast<int>(number);
    auto& own = *world[number];
    const auto node = own.Split(rank / 2, -rank, kDeadline);
    EXPECT_EQ(node->rank(), 1 - rank % 2);
    EXPECT_EQ(node->topology(), (Topology{2, 2}));
    const auto across = own.Split(rank % 2, rank, kDeadline);
    EXPECT_EQ(across->rank(), rank / 2);
    EXPECT_EQ(across->topology(), (Topology{3, 1}));
    // The same peer and tag on two communicators, posted in the opposite order.
    if (rank == 0) {
      const int one = 1;
      const int two = 2;
      const auto a = own.Isend(2, 0, Bytes(one));
      const auto b = across->Isend(1, 0, Bytes(two));
      while (!a->Test() || !b->Test()) own.Idle(milliseconds(1));
    } else if (rank == 2) {
      int one = 0;
      int two = 0;
      const auto b = across->Irecv(0, 0, Room(two));
      EXPECT_EQ(b->peer(), 0);
      const auto a = own.Irecv(0, 0, Room(one));
      while (!a->Test() || !b->Test()) own.Idle(milliseconds(1));
      EXPECT_EQ(one, 1);
      EXPECT_EQ(two, 2);
    }
  });
}

TEST_P(Conformance, SplitThatCannotBeNumberedByNodeIsRefused) {
  auto world = Make(3, 2);
  std::array<std::string, 3> failures;
  OnThreads(3, [&](std::size_t rank) {
    failures[rank] =
        FailureOf([&] { (void)world[rank]->Split(0, -static_cast<int>(rank), kDeadline); });
  });
  for (const auto& failure : failures) {
    EXPECT_SAYS(failure, "cannot be numbered node by node");
  }
}

TEST_P(Conformance, SplitNamesWhoIsMissing) {
  auto world = Make(2, 1);
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Split(0, 0, milliseconds(30)); }),
            "timeout: split: rank 1 did not arrive within 30 ms");
  auto other = Make(2, 1);
  other[1].reset();
  EXPECT_SAYS(FailureOf([&] { (void)other[0]->Split(0, 0, kDeadline); }), "rank 1 is lost");
}

TEST_P(Conformance, ManyTasksAtOnceOnManyTags) {
  RunRanksOver(Make(4, 2), kDeadline, [](ProgressLoop& loop) {
    constexpr int kTasks = 40;
    std::vector<std::vector<float>> data(kTasks);
    std::vector<ExchangeBuffers> buffers(kTasks);
    std::vector<std::promise<void>> ended(kTasks);
    for (int t = 0; t < kTasks; ++t) {
      const auto i = static_cast<std::size_t>(t);
      data[i].assign(static_cast<std::size_t>(100 * t + 1), static_cast<float>(loop.rank() + t));
      buffers[i].dense = data[i];
      loop.Start(
          [&, t, i](Communicator& world) {
            return CoreCollective("ring-allreduce")->Run(world, buffers[i], 16 * t);
          },
          [&, i](std::exception_ptr error) {
            error ? ended[i].set_exception(error) : ended[i].set_value();
          });
    }
    for (int t = 0; t < kTasks; ++t) {
      const auto i = static_cast<std::size_t>(t);
      ended[i].get_future().get();
      for (const float value : data[i]) ASSERT_EQ(value, static_cast<float>(6 + 4 * t));
    }
  });
}

// Sums any number of elements, and counts the messages that the model plans.
TEST_P(Conformance, RingSumsAndCountsAsPlannedAlsoWhereItIsShaped) {
  for (const bool shaped : {false, true}) {
    const auto wrap = [&](std::unique_ptr<Communicator> world) {
      if (!shaped) return world;
      return MakeShaped(std::move(world), {{.gbps = 1.0, .alpha_seconds = 100e-6}}, kDeadline);
    };
    RunRanksOver(
        Make(3, 1), kDeadline,
        [](ProgressLoop& loop) {
          for (const std::size_t n : {0, 1, 2, 1000, 300'001}) {
            std::vector<float> data(n);
            std::iota(data.begin(), data.end(), static_cast<float>(loop.rank()));
            const Traffic traffic = SumCounted(loop, *CoreCollective("ring-allreduce"), data);
            for (std::size_t i = 0; i < n; ++i)
              ASSERT_EQ(data[i], static_cast<float>(3 * i + 3)) << i << " of " << n;
            const std::vector<std::uint64_t> sizes(3, n * sizeof(float));
            const RoundPlan plan =
                CoreCollective("ring-allreduce")->Rounds(SizesOf(sizes), Topology{3, 1});
            EXPECT_EQ(traffic, plan.per_rank[static_cast<std::size_t>(loop.rank())]);
          }
        },
        wrap);
  }
}

TEST_P(Conformance, SparseAllGatherWithUnequalCounts) {
  for (const auto& sizes : UnequalSizes(3)) {
    RunRanksOver(Make(3, 1), kDeadline, [&](ProgressLoop& loop) {
      const auto rank = static_cast<std::size_t>(loop.rank());
      const std::size_t most = *std::max_element(sizes.begin(), sizes.end()) + 1;
      std::vector<std::uint64_t> own(sizes[rank], rank + 1);
      std::vector<std::uint64_t> gathered(3 * most);
      ExchangeBuffers buffers;
      buffers.own = std::as_bytes(std::span(own));
      buffers.gathered = std::as_writable_bytes(std::span(gathered));
      buffers.capacity_bytes = most * sizeof(std::uint64_t);
      RunCounted(loop, *CoreCollective("sparse-allgather"), buffers);
      for (std::size_t r = 0; r < 3; ++r) {
        ASSERT_EQ(buffers.payloads[r].size(), sizes[r] * sizeof(std::uint64_t));
        for (std::size_t i = 0; i < sizes[r]; ++i) {
          std::uint64_t word = 0;
          std::memcpy(&word, buffers.payloads[r].data() + i * sizeof word, sizeof word);
          ASSERT_EQ(word, r + 1);
        }
      }
    });
  }
}

// One rank's communication thread stands still, like the thread of a stopped process.
TEST_P(Conformance, StalledRankIsNamedByAll) {
  constexpr milliseconds kShort{2000};
  std::array<std::string, 4> failures;
  std::promise<void> end_of_stall;
  const auto stalled_until = end_of_stall.get_future().share();
  std::atomic<int> survivors{3};
  RunRanksOver(Make(4, 1), kShort, [&](ProgressLoop& loop) {
    loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
    if (loop.rank() == 2) {
      loop.RunBlocking([&](Communicator&) {
        stalled_until.wait();
        return Task();
      });
      return;
    }
    failures[static_cast<std::size_t>(loop.rank())] = FailureOfAllReduce(loop);
    if (--survivors == 0) end_of_stall.set_value();
  });
  for (const int rank : {0, 1, 3}) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    EXPECT_EQ(failure.find("timeout: no progress for 2000 ms: rank"), 0u) << failure;
    EXPECT_SAYS(failure, "not answer");
    EXPECT_NE(failure.find('2', failure.find("ms: rank")), std::string::npos) << failure;
  }
}

TEST_P(Conformance, LostRankEndsTasksWithoutWaitingForTheDeadline) {
  auto worlds = Make(3, 1);
  std::vector<std::unique_ptr<ProgressLoop>> loops;
  for (auto& world : worlds) {
    loops.push_back(std::make_unique<ProgressLoop>([&] { return std::move(world); }, kDeadline));
  }
  OnThreads(loops.size(), [&](std::size_t rank) {
    loops[rank]->RunBlocking([](Communicator& world) { return Barrier(world, 0); });
  });
  std::promise<std::string> failure;
  loops[0]->Start([](Communicator& world) { return Barrier(world, 1); },
                  [&](std::exception_ptr error) {
                    failure.set_value(FailureOf([&] { std::rethrow_exception(error); }));
                  });
  loops[2].reset();
  EXPECT_EQ(failure.get_future().get(), "comm: rank 2 is lost");
  // After the deadline the error would be a timeout.
}

}  // namespace
}  // namespace sparfuse::testing
