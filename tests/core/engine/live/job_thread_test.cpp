// Tests that jobs of collectives run beside the communication thread, and end with their requests.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/error.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

TEST(JobThread, RunsBesideTheCommunicationThreadAndWakesIt) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    JobThread jobs(loop);
    ExchangeBuffers buffers;
    buffers.jobs = &jobs;
    std::thread::id communicating, working;
    int sum = 0;
    loop.RunBlocking([&](Communicator&) -> Task {
      communicating = std::this_thread::get_id();
      for (int i = 1; i <= 100; ++i) {
        const std::function<void()> add = [&, i] {
          working = std::this_thread::get_id();
          sum += i;
        };
        co_await OffThread(buffers, add);
      }
    });
    EXPECT_EQ(sum, 5050);
    EXPECT_NE(communicating, working);
  });
}

TEST(JobThread, WhatAJobThrowsEndsTheExchange) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    JobThread jobs(loop);
    ExchangeBuffers buffers;
    buffers.jobs = &jobs;
    EXPECT_THROW(loop.RunBlocking([&](Communicator&) -> Task {
      const std::function<void()> fail = [] { SPARFUSE_THROW(kComm, "no"); };
      co_await OffThread(buffers, fail);
    }),
                 Error);
  });
}

TEST(JobThread, ARequestThatIsGivenUpWaitsForItsJobAlone) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    JobThread jobs(loop);
    std::atomic<bool> begun{false}, go_on{false}, ended{false}, second{false};
    auto first = jobs.Start([&] {
      begun = true;
      while (!go_on) std::this_thread::yield();
      ended = true;
    });
    auto queued = jobs.Start([&] { second = true; });
    while (!begun) std::this_thread::yield();
    queued.reset();  // its job has not begun: returns at once
    go_on = true;
    first.reset();
    EXPECT_TRUE(ended);
    jobs.Stop();
    EXPECT_FALSE(second);
  });
}

TEST(JobThread, WithoutOneWorkIsDoneWhereItComesUp) {
  RunRanks(1, 1, kDeadline, [](ProgressLoop& loop) {
    ExchangeBuffers buffers;
    bool done = false;
    loop.RunBlocking([&](Communicator&) -> Task {
      const std::function<void()> work = [&] { done = true; };
      co_await OffThread(buffers, work);
    });
    EXPECT_TRUE(done);
  });
}

}  // namespace
}  // namespace sparfuse::testing
