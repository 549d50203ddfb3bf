// Tests transport `threads`, and the ProgressLoop over it: order, splits, ranks lost or stalled.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "core/collective/collective.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"
#include "tests/support/transport_cases.hpp"

namespace sparfuse::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
constexpr milliseconds kDeadline{20'000};

TEST(ThreadsTransport, MessagesWithEqualTagKeepTheirOrder) {
  auto world = MakeThreadsWorld(2, 1);
  std::array<int, 4> sent{10, 11, 20, 12};
  std::vector<std::unique_ptr<Request>> requests;
  for (const int& value : sent) {
    requests.push_back(world[0]->Isend(1, value >= 20 ? 2 : 1, Bytes(value)));
  }
  EXPECT_FALSE(requests[0]->Test());
  std::array<int, 4> received{};
  const std::array tags{2, 1, 1, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    requests.push_back(world[1]->Irecv(0, tags[i], Room(received[i])));
  }
  for (const auto& request : requests) EXPECT_TRUE(request->Test());
  EXPECT_EQ(received, (std::array{20, 10, 11, 12}));
}

TEST(ThreadsTransport, CountsTrafficByLink) {
  auto world = MakeThreadsWorld(4, 2);
  std::array<std::byte, 100> from{};
  std::array<std::byte, 200> to{};
  for (const int peer : {1, 2, 2}) {
    const auto send = world[0]->Isend(peer, 0, from);
    const auto receive = world[static_cast<std::size_t>(peer)]->Irecv(0, 0, to);
    EXPECT_TRUE(receive->Test());
    EXPECT_TRUE(receive->Test());
    EXPECT_EQ(receive->bytes(), 100u);
    EXPECT_TRUE(send->Test());
  }
  EXPECT_EQ(world[0]->traffic(), (TrafficByLink{Traffic{1, 0, 100, 0}, Traffic{2, 0, 200, 0}}));
  EXPECT_EQ(world[2]->traffic(), (TrafficByLink{Traffic{}, Traffic{0, 2, 0, 200}}));
}

TEST(ThreadsTransport, MessageLargerThanTheBufferIsAnError) {
  auto world = MakeThreadsWorld(2, 1);
  const double large = 1;
  std::int32_t small = 7;
  const auto send = world[0]->Isend(1, 0, Bytes(large));
  const auto receive = world[1]->Irecv(0, 0, Room(small));
  EXPECT_EQ(FailureOf([&] { receive->Test(); }),
            "comm: message of 8 bytes from rank 0: expected at most 4");
  EXPECT_EQ(small, 7);
}

TEST(ThreadsTransport, WithdrawnRequestsMatchNothing) {
  auto world = MakeThreadsWorld(2, 1);
  int first = 1;
  const int second = 2;
  world[0]->Isend(1, 0, Bytes(first)).reset();
  const auto send = world[0]->Isend(1, 0, Bytes(second));
  int received = 0;
  world[1]->Irecv(0, 5, Room(first)).reset();
  const auto receive = world[1]->Irecv(0, 0, Room(received));
  EXPECT_TRUE(receive->Test());
  EXPECT_EQ(received, 2);
}

TEST(ThreadsTransport, LostRankFailsWhatIsPendingAndWhatComesLater) {
  auto world = MakeThreadsWorld(3, 1);
  int value = 0;
  const auto receive = world[0]->Irecv(2, 0, Room(value));
  const auto send = world[1]->Isend(2, 0, Bytes(value));
  const auto unrelated = world[0]->Irecv(1, 0, Room(value));
  EXPECT_FALSE(receive->Test());
  world[2].reset();
  EXPECT_EQ(FailureOf([&] { receive->Test(); }), "comm: rank 2 is lost");
  EXPECT_EQ(FailureOf([&] { send->Test(); }), "comm: rank 2 is lost");
  const auto later = world[0]->Irecv(2, 0, Room(value));
  EXPECT_EQ(FailureOf([&] { later->Test(); }), "comm: rank 2 is lost");
  EXPECT_FALSE(unrelated->Test());
}

TEST(ThreadsTransport, IdleReturnsWhenAnOperationEnds) {
  auto world = MakeThreadsWorld(2, 1);
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
}

TEST(ThreadsTransport, SplitNumbersByKeyAndKeepsMessagesApart) {
  auto world = MakeThreadsWorld(6, 2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 6; ++rank) {
    threads.emplace_back([&, rank] {
      auto& own = *world[static_cast<std::size_t>(rank)];
      const auto node = own.Split(rank / 2, -rank, kDeadline);
      EXPECT_EQ(node->rank(), 1 - rank % 2);
      EXPECT_EQ(node->topology(), (Topology{2, 2}));
      const auto across = own.Split(rank % 2, rank, kDeadline);
      EXPECT_EQ(across->rank(), rank / 2);
      EXPECT_EQ(across->topology(), (Topology{3, 1}));
      // The same peer and tag on two communicators: posted in the opposite order.
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
  for (auto& thread : threads) thread.join();
}

TEST(ThreadsTransport, SplitThatCannotBeNumberedByNodeIsRefused) {
  auto world = MakeThreadsWorld(3, 2);
  std::vector<std::thread> threads;
  std::array<std::string, 3> failures;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      failures[rank] =
          FailureOf([&] { (void)world[rank]->Split(0, -static_cast<int>(rank), kDeadline); });
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    EXPECT_SAYS(failure, "cannot be numbered node by node");
  }
}

TEST(ThreadsTransport, SplitNamesWhoIsMissing) {
  auto world = MakeThreadsWorld(2, 1);
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Split(0, 0, milliseconds(30)); }),
            "timeout: split: rank 1 did not arrive within 30 ms");
  auto other = MakeThreadsWorld(2, 1);
  other[1].reset();
  EXPECT_EQ(FailureOf([&] { (void)other[0]->Split(0, 0, kDeadline); }),
            "comm: split: rank 1 is lost");
}

TEST(ThreadsTransport, WorldOfNoRanksIsRefused) {
  EXPECT_EQ(FailureOf([] { (void)MakeThreadsWorld(0, 1); }),
            "config: threads: 0 ranks: expected at least 1");
}

// --- ProgressLoop ---------------------------------------------------------------------------

TEST(ProgressLoop, ManyTasksAtOnceOnManyTags) {
  RunRanks(4, 2, kDeadline, [](ProgressLoop& loop) {
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

TEST(ProgressLoop, ErrorsOfMakeAndOfTasksGoToDone) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    EXPECT_EQ(FailureOf([&] {
                loop.RunBlocking([](Communicator&) -> Task { SPARFUSE_THROW(kData, "in make"); });
              }),
              "data: in make");
    EXPECT_EQ(FailureOf([&] {
                loop.RunBlocking([](Communicator& world) -> Task {
                  co_await Barrier(world, 0);
                  SPARFUSE_THROW(kNumeric, "in task");
                });
              }),
              "numeric: in task");
    loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
  });
}

TEST(ProgressLoop, SetupErrorIsThrownByTheConstructor) {
  EXPECT_EQ(FailureOf([] {
              const ProgressLoop loop(
                  []() -> std::unique_ptr<Communicator> { SPARFUSE_THROW(kConfig, "no world"); },
                  kDeadline);
            }),
            "config: no world");
}

TEST(ProgressLoop, DropsUnfinishedTasksWhenDestroyed) {
  auto worlds = MakeThreadsWorld(2, 1);
  std::atomic<int> calls{0};
  {
    std::vector<std::unique_ptr<ProgressLoop>> loops;
    for (auto& world : worlds) {
      loops.push_back(std::make_unique<ProgressLoop>([&] { return std::move(world); }, kDeadline));
    }
    std::promise<void> started;
    loops[0]->Start(
        [&](Communicator& world) {
          started.set_value();
          return Barrier(world, 0);
        },
        [&](std::exception_ptr) { ++calls; });
    started.get_future().wait();
    loops[0].reset();  // before the other one: its loss must not become a call
  }
  EXPECT_EQ(calls, 0);
}

// One rank's loop never starts the collective. Who is named then is Liveness's matter: on a busy
// machine a rank may not get its turn in time to answer.
TEST(ProgressLoop, RankThatNeverArrivesEndsTheTasksOfAllAtTheirDeadline) {
  constexpr milliseconds kShort{2000};
  std::array<std::string, 4> failures;
  RunRanks(4, 1, kShort, [&](ProgressLoop& loop) {
    if (loop.rank() == 2) return;
    const auto start = steady_clock::now();
    std::vector<float> data(1000);
    ExchangeBuffers buffers;
    buffers.dense = data;
    failures[static_cast<std::size_t>(loop.rank())] = FailureOf([&] {
      loop.RunBlocking([&](Communicator& world) {
        return CoreCollective("ring-allreduce")->Run(world, buffers, 0);
      });
    });
    EXPECT_GE(steady_clock::now() - start, kShort);
  });
  for (const int rank : {0, 1, 3}) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    EXPECT_EQ(failure.find("timeout: no progress for 2000 ms: rank"), 0u) << failure;
  }
}

// One rank's communication thread stands still, as that of a stopped process does.
TEST(ProgressLoop, StalledRankIsNamedByAll) {
  constexpr milliseconds kShort{2000};
  std::array<std::string, 4> failures;
  std::promise<void> end_of_stall;
  const auto stalled_until = end_of_stall.get_future().share();
  std::atomic<int> survivors{3};
  RunRanks(4, 1, kShort, [&](ProgressLoop& loop) {
    loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
    if (loop.rank() == 2) {
      loop.RunBlocking([&](Communicator&) {
        stalled_until.wait();
        return Task();
      });
      return;
    }
    std::vector<float> data(1000);
    ExchangeBuffers buffers;
    buffers.dense = data;
    failures[static_cast<std::size_t>(loop.rank())] = FailureOf([&] {
      loop.RunBlocking([&](Communicator& world) {
        return CoreCollective("ring-allreduce")->Run(world, buffers, 0);
      });
    });
    if (--survivors == 0) end_of_stall.set_value();
  });
  for (const int rank : {0, 1, 3}) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    EXPECT_EQ(failure.find("timeout: no progress for 2000 ms: rank"), 0u) << failure;
    EXPECT_SAYS(failure, "not answer");
    EXPECT_NE(failure.find('2', failure.find("ms: rank")), std::string::npos) << failure;
  }
}

TEST(ProgressLoop, RankWithoutLoopIsNamed) {
  auto worlds = MakeThreadsWorld(2, 1);
  ProgressLoop loop([&] { return std::move(worlds[0]); }, milliseconds(50));
  EXPECT_EQ(
      FailureOf([&] { loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); }); }),
      "timeout: split: rank 1 did not arrive within 50 ms");
}

TEST(ProgressLoop, LostRankEndsTasksWithoutWaitingForTheDeadline) {
  auto worlds = MakeThreadsWorld(3, 1);
  std::vector<std::unique_ptr<ProgressLoop>> loops;
  for (auto& world : worlds) {
    loops.push_back(std::make_unique<ProgressLoop>([&] { return std::move(world); }, kDeadline));
  }
  std::vector<std::thread> threads;
  for (auto& loop : loops) {
    threads.emplace_back(
        [&] { loop->RunBlocking([](Communicator& world) { return Barrier(world, 0); }); });
  }
  for (auto& thread : threads) thread.join();
  std::promise<std::string> failure;
  loops[0]->Start([](Communicator& world) { return Barrier(world, 1); },
                  [&](std::exception_ptr error) {
                    failure.set_value(FailureOf([&] { std::rethrow_exception(error); }));
                  });
  loops[2].reset();
  EXPECT_EQ(failure.get_future().get(), "comm: rank 2 is lost");
  // Past the deadline it would be a timeout.
}

}  // namespace
}  // namespace sparfuse::testing
