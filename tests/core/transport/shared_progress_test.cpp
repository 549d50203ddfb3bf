// Tests loops of many ranks on few threads, and messages between ranks that share memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using std::chrono::milliseconds;

// Each rank has its own thread; one of `servers` threads serves its loop.
void RunServed(int ranks, int ranks_per_node, int servers, milliseconds deadline,
               const std::function<void(ProgressLoop&)>& body) {
  SharedProgress progress(ranks, servers);
  std::vector<std::unique_ptr<ProgressLoop>> loops;
  for (auto& world : MakeThreadsWorld(ranks, ranks_per_node, progress.bells())) {
    loops.push_back(std::make_unique<ProgressLoop>(std::move(world), deadline, progress));
  }
  OnThreads(loops.size(), [&](std::size_t rank) { body(*loops[rank]); });
}

TEST(SharedProgress, ManyRanksSumOnFewThreads) {
  for (const int servers : {1, 2, 7, 100}) {
    static constexpr int kRanks = 40;
    RunServed(kRanks, 1, servers, kDeadline, [](ProgressLoop& loop) {
      for (int step = 0; step < 3; ++step) {
        std::vector<float> values(100, static_cast<float>(loop.rank()));
        SumCounted(loop, *CoreCollective("ring-allreduce"), values, step);
        for (const float value : values) ASSERT_EQ(value, kRanks * (kRanks - 1) / 2);
      }
    });
  }
}

// A loop must not block other loops that its thread serves.
TEST(SharedProgress, SplitsWithoutBlocking) {
  static constexpr int kRanks = 6;
  RunServed(kRanks, 2, 2, kDeadline, [](ProgressLoop& loop) {
    std::unique_ptr<Communicator> node;
    std::int64_t most = loop.rank();
    loop.RunBlocking([&](Communicator& world) -> Task {
      co_await SplitOff(world, world.topology().NodeOf(world.rank()), world.rank(), kDeadline,
                        node);
      co_await AllReduceMax(*node, {&most, 1}, 0);
    });
    EXPECT_EQ(node->size(), 2);
    EXPECT_EQ(most, loop.rank() / 2 * 2 + 1);
    loop.RunBlocking([&](Communicator&) -> Task {
      node.reset();
      co_return;
    });
  });
}

TEST(SharedProgress, TheRankThatAllWaitForIsNamed) {
  constexpr milliseconds kShort{300};
  std::array<std::string, 4> failures;
  RunServed(4, 1, 2, kShort, [&](ProgressLoop& loop) {
    if (loop.rank() == 2) return;
    failures[static_cast<std::size_t>(loop.rank())] = FailureOfAllReduce(loop);
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(failures[static_cast<std::size_t>(rank)],
              "timeout: no progress for 300 ms: rank 2 answers but did not send");
  }
}

// A rank that gave up first is not blamed by the ranks that wait for it.
TEST(SharedProgress, ARankThatGaveUpIsNotNamed) {
  SharedProgress progress(3, 1);
  std::vector<std::unique_ptr<ProgressLoop>> loops;
  for (auto& world : MakeThreadsWorld(3, 1, progress.bells())) {
    const milliseconds deadline{world->rank() == 1 ? 400 : 100};
    loops.push_back(std::make_unique<ProgressLoop>(std::move(world), deadline, progress));
  }
  // Rank 1 waits for rank 2, which waits for rank 0 and gives up long before.
  const auto waits_for = [&](int rank, int peer) {
    return FailureOf([&] {
      loops[static_cast<std::size_t>(rank)]->RunBlocking([&](Communicator& world) -> Task {
        std::array<std::byte, 4> inbox;
        co_await Complete(world.Irecv(peer, 7, inbox));
      });
    });
  };
  std::string of_the_last;
  std::thread last([&] { of_the_last = waits_for(1, 2); });
  EXPECT_EQ(waits_for(2, 0), "timeout: no progress for 100 ms: rank 0 answers but did not send");
  last.join();
  EXPECT_EQ(of_the_last, "timeout: no progress for 400 ms: rank 0 answers but did not send");
}

TEST(SharedProgress, CancelledTasksEnd) {
  RunServed(2, 1, 1, kDeadline, [](ProgressLoop& loop) {
    if (loop.rank() == 1) return;
    std::thread cancels([&] {
      std::this_thread::sleep_for(milliseconds(20));
      loop.Cancel();
    });
    EXPECT_EQ(
        FailureOf([&] { loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); }); }),
        "comm: given up after an error on rank 0");
    cancels.join();
  });
}

TEST(SharedMemory, WhatIsSentIsReadWhereItLies) {
  auto world = MakeThreadsWorld(2, 1);
  ASSERT_TRUE(world[0]->shares_memory());
  const auto owner = std::make_shared<std::array<std::byte, 24>>();
  SharedBytes received;
  const auto receive = world[1]->IrecvShared(0, 3, received);
  EXPECT_FALSE(receive->Test());
  const auto send = world[0]->IsendShared(1, 3, {owner, *owner});
  EXPECT_TRUE(send->Test());
  EXPECT_TRUE(receive->Test());
  EXPECT_EQ(receive->bytes(), 24u);
  EXPECT_EQ(received.bytes.data(), owner->data());
  EXPECT_EQ(received.owner, owner);
  EXPECT_EQ(Total(world[1]->traffic()).bytes_received, 24u);
  EXPECT_EQ(Total(world[0]->traffic()).bytes_sent, 24u);
}

TEST(SharedMemory, MeetsMessagesThatAreCopied) {
  auto world = MakeThreadsWorld(2, 1);
  const auto owner = std::make_shared<std::array<std::byte, 4>>();
  owner->fill(std::byte{7});
  std::array<std::byte, 4> copied{};
  const auto shared = world[0]->IsendShared(1, 0, {owner, *owner});
  EXPECT_TRUE(world[1]->Irecv(0, 0, copied)->Test());
  EXPECT_EQ(copied, *owner);
  SharedBytes received;
  const auto plain = world[0]->Isend(1, 1, copied);
  EXPECT_TRUE(world[1]->IrecvShared(0, 1, received)->Test());
  EXPECT_TRUE(std::ranges::equal(received.bytes, copied));
}

// Payloads with an owner are not copied; the results are the same as with room for copies.
TEST(SharedMemory, GathersWithoutRoom) {
  static constexpr int kRanks = 5;
  RunServed(kRanks, 1, 2, kDeadline, [](ProgressLoop& loop) {
    const auto own = std::make_shared<Buffer<std::byte>>(kSparseElementBytes *
                                                         static_cast<std::size_t>(loop.rank() + 1));
    std::ranges::fill(own->host(), static_cast<std::byte>(loop.rank()));
    ExchangeBuffers buffers;
    buffers.own = own->host();
    buffers.own_owner = own;
    buffers.capacity_bytes = kSparseElementBytes * kRanks;
    RunCounted(loop, *CoreCollective("sparse-allgather"), buffers);
    ASSERT_EQ(buffers.payloads.size(), kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(buffers.payloads[rank].size(), kSparseElementBytes * (rank + 1));
      for (const std::byte byte : buffers.payloads[rank])
        EXPECT_EQ(byte, static_cast<std::byte>(rank));
    }
  });
}

}  // namespace
}  // namespace sparfuse::testing
