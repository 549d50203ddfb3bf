// Tests the thread pool: chunks, exceptions, concurrent callers, sizes.
#include "core/base/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/errors.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

TEST(ThreadPool, RunsEveryChunkOnceOnAWorkerOfThePool) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::size_t chunks : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> runs(chunks);
      pool.ParallelFor(chunks, [&](std::size_t chunk, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++runs[chunk];
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, AWorkerIsNeverInTwoChunksAtOnce) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> inside(3);
  pool.ParallelFor(3000, [&](std::size_t, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    ASSERT_EQ(inside[w].fetch_add(1), 0);
    inside[w].fetch_sub(1);
  });
}

TEST(ThreadPool, RethrowsTheFirstExceptionAndStaysUsable) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> after{0};
    EXPECT_THROW(pool.ParallelFor(100,
                                  [](std::size_t chunk, int) {
                                    if (chunk == 5) throw std::runtime_error("chunk 5");
                                  }),
                 std::runtime_error);
    pool.ParallelFor(10, [&](std::size_t, int) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST(ThreadPool, ConcurrentCallersQueue) {
  ThreadPool pool(2);
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pool.ParallelFor(7, [&](std::size_t, int) { ++total; });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 7);
}

TEST(ThreadPool, WorkersSeeWhatTheCallerWroteAndTheOtherWay) {
  ThreadPool pool(3);
  std::vector<int> data(100);
  for (int round = 0; round < 200; ++round) {
    for (int& d : data) d = round;
    pool.ParallelFor(data.size(), [&](std::size_t chunk, int) { data[chunk] *= 2; });
    for (const int d : data) ASSERT_EQ(d, 2 * round);
  }
}

TEST(ThreadPool, SizesBeyondReasonAreRefusedWithTheNumber) {
  for (const int threads : {-1, 0, kMostThreads + 1, 1'000'000'000}) {
    ExpectError(FailureKind::kConfig, {std::to_string(threads)}, [&] { ThreadPool pool(threads); });
  }
}

// Leaves address space for only some threads' stacks. A started thread that is not joined would end
// the process.
[[noreturn]] void MakeAPoolThatCannotStart() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * 4096 + (rlim_t{100} << 20);
  const rlimit both{limit, limit};
  setrlimit(RLIMIT_AS, &both);
  try {
    ThreadPool pool(500);
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool named = text.find("a pool of 500 threads: ") != std::string::npos;
    std::_Exit(error.kind() == FailureKind::kUnsupported && named ? 0 : 2);
  }
  std::_Exit(1);
}

TEST(ThreadPool, AThreadThatCannotBeStartedIsAnErrorAndTheOthersAreJoined) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve all of the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(MakeAPoolThatCannotStart(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sparfuse::testing
