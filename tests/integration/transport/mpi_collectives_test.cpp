// Tests the mpi transport, under mpirun: collectives, split, probes, shaped over it.
//
//   mpirun -np P mpi_collectives_test            all tests
//   mpirun -np P mpi_collectives_test --stall    the last rank stops itself (SIGSTOP); the others
//                                                print who does not answer
//   mpirun -np P mpi_collectives_test --world    checks its world against SPARFUSE_WORLD
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "core/transport/mpi.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/shaped/shaped.hpp"
#include "core/transport/world/world_check.hpp"
#include "tests/support/communicators/transport_cases.hpp"

namespace sparfuse {
namespace {

using testing::FailureOf;
constexpr std::chrono::milliseconds kDeadline{30'000};
constexpr int kTag = 16;

// One world for the process: MPI cannot be initialised twice.
std::unique_ptr<ProgressLoop> loop;
std::unique_ptr<Communicator> shaped;  // over a split of the world; used on the loop's thread

void StartLoop(std::chrono::milliseconds deadline) {
  loop = std::make_unique<ProgressLoop>(
      [deadline] {
        auto world = MakeMpiWorld(2);
        shaped = MakeShaped(world->Split(0, world->rank(), deadline),
                            {{0.5, 100e-6}, LinkShape{1.0, 100e-6}}, deadline);
        return world;
      },
      deadline);
}

// Sums n integers on `transport` and returns its traffic.
Traffic RunDense(std::string_view name, std::size_t n, Communicator* transport = nullptr) {
  std::vector<float> data(n);
  for (std::size_t i = 0; i < n; ++i) {
    data[i] = static_cast<float>(static_cast<std::size_t>(loop->rank() + 1) * (i % 1000));
  }
  ExchangeBuffers buffers;
  buffers.dense = data;
  Traffic traffic;
  loop->RunBlocking([&](Communicator& world) -> Task {
    Communicator& communicator = transport == nullptr ? world : *transport;
    const Traffic before = Total(communicator.traffic());
    co_await CoreCollective(name)->Run(communicator, buffers, kTag);
    traffic = Total(communicator.traffic()) - before;
  });
  const auto ranks = static_cast<std::size_t>(loop->size());
  for (std::size_t i = 0; i < n; ++i) {
    const auto expected = static_cast<float>(ranks * (ranks + 1) / 2 * (i % 1000));
    if (data[i] != expected) {
      ADD_FAILURE() << name << ", n = " << n << ": element " << i << " is " << data[i]
                    << ", expected " << expected;
      break;
    }
  }
  return traffic;
}

Traffic PlannedRing(std::size_t n) {
  const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(loop->size()), n * sizeof(float));
  return CoreCollective("ring-allreduce")
      ->Rounds(SizesOf(sizes), Topology{loop->size(), 2})
      .per_rank[static_cast<std::size_t>(loop->rank())];
}

TEST(Mpi, RingAllReduceSumsAndCountsAsPlanned) {
  for (const std::size_t n : {0, 1, 2, 3, 5, 1000, 1'000'003}) {
    EXPECT_EQ(RunDense("ring-allreduce", n), PlannedRing(n)) << "n = " << n;
  }
}

TEST(Mpi, NativeAllReduceSumsAndIsNotCounted) {
  for (const std::size_t n : {1, 1000, 1'000'003}) {
    EXPECT_EQ(RunDense("native-allreduce", n), Traffic{});
  }
}

TEST(Mpi, ShapedRingSumsAndCountsAsPlanned) {
  for (const std::size_t n : {0, 1, 3, 100'003}) {
    EXPECT_EQ(RunDense("ring-allreduce", n, shaped.get()), PlannedRing(n)) << "n = " << n;
  }
}

TEST(Mpi, SparseAllGatherWithUnequalCounts) {
  const auto ranks = static_cast<std::size_t>(loop->size());
  const auto rank = static_cast<std::size_t>(loop->rank());
  for (const std::size_t scale : {0, 1, 1000, 300'000}) {
    // Rank 0 sends nothing.
    std::vector<std::uint64_t> sizes;
    for (std::size_t r = 0; r < ranks; ++r) sizes.push_back(r * scale * kSparseElementBytes);
    std::vector<std::uint32_t> own(sizes[rank] / sizeof(std::uint32_t));
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<std::uint32_t>(i * 7 + rank);
    std::vector<std::uint64_t> gathered(ranks * (ranks * scale + 1));
    ExchangeBuffers buffers;
    buffers.own = std::as_bytes(std::span(own));
    buffers.gathered = std::as_writable_bytes(std::span(gathered));
    buffers.capacity_bytes = (ranks * scale + 1) * kSparseElementBytes;
    Traffic traffic;
    loop->RunBlocking([&](Communicator& world) -> Task {
      const Traffic before = Total(world.traffic());
      co_await CoreCollective("sparse-allgather")->Run(world, buffers, kTag);
      traffic = Total(world.traffic()) - before;
    });
    const RoundPlan plan =
        CoreCollective("sparse-allgather")->Rounds(SizesOf(sizes), Topology{loop->size(), 2});
    EXPECT_EQ(traffic, plan.per_rank[rank]);
    for (std::size_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(buffers.payloads[r].size(), sizes[r]);
      for (std::size_t i = 0; i < sizes[r] / sizeof(std::uint32_t); ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, buffers.payloads[r].data() + i * sizeof word, sizeof word);
        ASSERT_EQ(word, i * 7 + r);
      }
    }
  }
}

TEST(Mpi, ControlCollectives) {
  std::vector<std::int64_t> values{loop->rank(), -loop->rank()};
  std::vector<std::byte> data(100, std::byte(loop->rank()));
  loop->RunBlocking([&](Communicator& world) -> Task {
    co_await AllReduceMax(world, values, kTag);
    co_await Broadcast(world, data, world.size() - 1, kTag);
    co_await Barrier(world, kTag);
  });
  EXPECT_EQ(values, (std::vector<std::int64_t>{loop->size() - 1, 0}));
  EXPECT_EQ(data, std::vector<std::byte>(100, std::byte(loop->size() - 1)));
}

TEST(Mpi, SplitByNodeCountsIntraNodeTraffic) {
  loop->RunBlocking([](Communicator& world) -> Task {
    const auto node = world.Split(world.rank() / 2, world.rank(), kDeadline);
    EXPECT_EQ(node->rank(), world.rank() % 2);
    std::int64_t rank = world.rank();
    co_await AllReduceMax(*node, std::span(&rank, 1), kTag);
    EXPECT_EQ(rank, std::min(world.rank() / 2 * 2 + 1, world.size() - 1));
    const auto peers = static_cast<std::uint64_t>(node->size() - 1);
    EXPECT_EQ(node->traffic()[0], (Traffic{peers, peers, 8 * peers, 8 * peers}));
    EXPECT_EQ(node->traffic()[1], Traffic{});
  });
}

TEST(Mpi, MessageLargerThanTheBufferIsAnError) {
  if (loop->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::string failure = FailureOf([] {
    loop->RunBlocking([](Communicator& world) -> Task {
      std::array<std::byte, 100> data{};
      if (world.rank() == 0) {
        co_await Complete(world.Isend(1, kTag, data));
      } else if (world.rank() == 1) {
        co_await Complete(world.Irecv(0, kTag, std::span(data).first(10)));
      }
    });
  });
  if (loop->rank() == 1) {
    EXPECT_EQ(failure.substr(0, failure.rfind(':')),
              "comm: MPI_Irecv of at most 10 bytes from rank 0: MPI_ERR_TRUNCATE");
  } else {
    EXPECT_EQ(failure, "none");
  }
}

TEST(Mpi, MessageOfTwoGibibytesIsRefused) {
  EXPECT_EQ(FailureOf([] {
              loop->RunBlocking([](Communicator& world) -> Task {
                std::byte byte{};
                // It is never read, since its length is refused.
                co_await Complete(world.Isend(0, kTag, {&byte, std::size_t{1} << 31}));
              });
            }),
            "unsupported: mpi: message of 2147483648 bytes: expected at most 2147483647; send "
            "smaller units");
}

// All ranks but the last start a collective; the last rank's loop answers probes.
TEST(Mpi, RankThatNeverArrivesIsNamed) {
  if (loop->size() < 2) GTEST_SKIP() << "needs two ranks";
  constexpr std::chrono::milliseconds kShort{1500};
  const int last = loop->size() - 1;
  // A separate loop with a short deadline, over a split of the world. MPI stays on one thread at a
  // time: the outer loop is held while the inner one runs.
  std::string failure;
  loop->RunBlocking([&](Communicator& outer) {
    auto inner = outer.Split(0, outer.rank(), kDeadline);
    {
      ProgressLoop short_loop([&] { return std::move(inner); }, kShort);
      if (outer.rank() != last) {
        failure = FailureOf(
            [&] { short_loop.RunBlocking([](Communicator& c) { return Barrier(c, kTag); }); });
      }
      std::this_thread::sleep_for(2 * kShort);  // answers probes meanwhile
    }
    return Barrier(outer, kTag);
  });
  if (loop->rank() != last) {
    EXPECT_EQ(failure, "timeout: no progress for 1500 ms: rank " + std::to_string(last) +
                           " answers but did not send");
  }
}

int RunStalled() {
  StartLoop(std::chrono::milliseconds(3000));
  const int last = loop->size() - 1;
  std::vector<pid_t> pids(static_cast<std::size_t>(loop->size()));
  const pid_t own = getpid();
  loop->RunBlocking([&](Communicator& world) {
    return AllGather(world, std::as_bytes(std::span(&own, 1)),
                     std::as_writable_bytes(std::span(pids)), kTag);
  });
  if (loop->rank() == last) {
    raise(SIGSTOP);
    _exit(1);  // after rank 0 continues it
  }
  std::vector<float> data(1000);
  ExchangeBuffers buffers;
  buffers.dense = data;
  const std::string failure = FailureOf([&] {
    loop->RunBlocking([&](Communicator& world) {
      return CoreCollective("ring-allreduce")->Run(world, buffers, kTag);
    });
  });
  std::printf("rank %d: %s\n", loop->rank(), failure.c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));  // answers probes meanwhile
  if (loop->rank() == 0) kill(pids.back(), SIGCONT);
  _exit(1);
}

// Checks the world like a worker does before anything else.
int RunWorldCheck() {
  const std::string failure = FailureOf([] {
    const auto world = MakeMpiWorld(1);
    CheckWorld(*world, WorldOfEnvironment().value(), kDeadline);
    FinalizeMpiOnClose();
  });
  std::printf("%s\n", failure.c_str());
  std::fflush(stdout);
  if (failure != "none") _exit(1);
  return 0;
}

}  // namespace
}  // namespace sparfuse

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--world") return sparfuse::RunWorldCheck();
  if (argc > 1 && std::string_view(argv[1]) == "--stall") return sparfuse::RunStalled();
  ::testing::InitGoogleTest(&argc, argv);
  sparfuse::StartLoop(sparfuse::kDeadline);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) _exit(failed);  // not MPI_Finalize, which other ranks may not reach
  sparfuse::loop->RunBlocking(
      [](sparfuse::Communicator& world) { return sparfuse::Barrier(world, sparfuse::kTag); });
  sparfuse::FinalizeMpiOnClose();
  sparfuse::loop.reset();
  sparfuse::shaped.reset();
  return 0;
}
