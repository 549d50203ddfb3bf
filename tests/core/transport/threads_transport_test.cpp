// Tests the features of transport `threads` alone, and the ProgressLoop over it: withdrawn
// requests, errors of tasks, missing ranks. The laws of all transports are in conformance_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "core/collective/collective.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A send is not complete before its receive is posted.
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

TEST(ThreadsTransport, WorldOfNoRanksIsRefused) {
  EXPECT_EQ(FailureOf([] { (void)MakeThreadsWorld(0, 1); }),
            "config: threads: 0 ranks: expected at least 1");
}

// --- ProgressLoop ---------------------------------------------------------------------------

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
    loops[0].reset();  // before the other, whose loss must cause no call
  }
  EXPECT_EQ(calls, 0);
}

// One rank's loop never starts the collective. Liveness decides which rank the error names: on a
// busy machine a rank may not get its turn in time to answer.
TEST(ProgressLoop, RankThatNeverArrivesEndsTheTasksOfAllAtTheirDeadline) {
  constexpr milliseconds kShort{2000};
  std::array<std::string, 4> failures;
  RunRanks(4, 1, kShort, [&](ProgressLoop& loop) {
    if (loop.rank() == 2) return;
    const auto start = steady_clock::now();
    failures[static_cast<std::size_t>(loop.rank())] = FailureOfAllReduce(loop);
    EXPECT_GE(steady_clock::now() - start, kShort);
  });
  for (const int rank : {0, 1, 3}) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    EXPECT_EQ(failure.find("timeout: no progress for 2000 ms: rank"), 0u) << failure;
  }
}

TEST(ProgressLoop, RankWithoutLoopIsNamed) {
  auto worlds = MakeThreadsWorld(2, 1);
  ProgressLoop loop([&] { return std::move(worlds[0]); }, milliseconds(50));
  EXPECT_EQ(
      FailureOf([&] { loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); }); }),
      "timeout: split: rank 1 did not arrive within 50 ms");
}

}  // namespace
}  // namespace sparfuse::testing
