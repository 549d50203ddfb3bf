// Tests streams, events, graphs, memory and errors of devices. Tests that need a device that can be
// held up or made to fail run on the emulated one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/device/completion_thread.hpp"
#include "core/device/emulated/emulated_launch.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/launch.hpp"
#include "core/device/runtime.hpp"
#include "core/device/status.hpp"
#include "core/payload/accumulate_device.hpp"
#include "tests/support/devices/device_arrays.hpp"
#include "tests/support/devices/gpu_graph.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::gpu {
namespace {

constexpr Device kEmulated{DeviceKind::kEmulated, 0};

struct AddOne {
  static constexpr int kThreads = 32;
  float* x;
  std::uint32_t n;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, NoShared&) const {
    const std::uint32_t i = block.block() * Block::kThreads + block.thread();
    if (i < n) x[i] += 1;
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(AddOne)
namespace {

// Each test sets a fault of its own.
class GpuFaults : public ::testing::Test {
 protected:
  void TearDown() override { InjectFault(""); }
};

class GpuRuntime : public OnDevices {
 protected:
  Device device() const { return {GetParam(), 0}; }
};
INSTANTIATE_TEST_SUITE_P(Devices, GpuRuntime, TheDevices(), DeviceName);

TEST_P(GpuRuntime, AStreamDoesItsWorkInOrderAndCopiesBothWays) {
  const DeviceArray<float> x(stream(), 100);
  const PinnedBuffer<float> host(100, device(), "a test");
  EXPECT_EQ(host[99], 0);
  std::fill_n(host.data(), 100, 3.0f);
  CopyAsync(stream(), x.data(), host.data(), 400);
  for (int i = 0; i < 2; ++i) ScaleDenseOnDevice(stream(), x.read(), 2, x.view());
  CopyAsync(stream(), host.data(), x.data(), 400);
  Synchronize(stream());
  for (const float value : host.span()) EXPECT_EQ(value, 12);
  FillAsync(stream(), x.data(), 0, 396);
  CopyAsync(stream(), host.data(), x.data(), 400);
  Synchronize(stream());
  EXPECT_EQ(host[98], 0);
  EXPECT_EQ(host[99], 12);
}

TEST_P(GpuRuntime, AnEventOrdersStreamsAndTellsTheTimeBetween) {
  constexpr std::size_t kElements = 1 << 20;
  const Buffer<float> x(kElements, device());
  const PinnedBuffer<float> from(kElements, device(), "a test");
  const PinnedBuffer<float> to(kElements, device(), "a test");
  std::fill_n(from.data(), kElements, 7.0f);
  const GpuStream other(device(), Priority::kHigh);
  GpuEvent begin(device());
  GpuEvent end(device());
  EXPECT_TRUE(end.Done());
  begin.Record(stream());
  CopyAsync(stream(), x.data(), from.data(), kElements * sizeof(float));
  end.Record(stream());
  StreamWait(other.view(), end);
  CopyAsync(other.view(), to.data(), x.data(), kElements * sizeof(float));
  Synchronize(other.view());
  EXPECT_EQ(std::count(to.data(), to.data() + kElements, 7.0f), kElements);
  EXPECT_TRUE(end.Done());
  EXPECT_GT(end.SecondsSince(begin), 0);
}

TEST(GpuEvent, OrdersStreamsAndTellsTheTimeBetween) {
  const GpuStream first(kEmulated);
  const GpuStream second(kEmulated);
  GpuEvent begin(kEmulated);
  GpuEvent end(kEmulated);
  EXPECT_TRUE(begin.Done());
  std::atomic<bool> go = false;
  std::atomic<bool> gone = false;
  begin.Record(first.view());
  emulated::Enqueue(first.view(), [&] {
    while (!go) std::this_thread::yield();
    gone = true;
  });
  end.Record(first.view());
  bool ordered = false;
  StreamWait(second.view(), end);
  emulated::Enqueue(second.view(), [&] { ordered = gone; });
  EXPECT_FALSE(end.Done());
  go = true;
  Synchronize(second.view());
  EXPECT_TRUE(ordered);
  end.Wait();
  EXPECT_TRUE(end.Done());
  EXPECT_GE(end.SecondsSince(begin), 0);
}

TEST(GpuEvent, OfAStreamThatFailedThrowsItsErrorAndSoDoesWhoeverWaits) {
  const GpuStream failed(kEmulated);
  const GpuStream other(kEmulated);
  std::atomic<bool> go = false;
  GpuEvent lost(kEmulated);
  emulated::Enqueue(failed.view(), [&] {
    while (!go) std::this_thread::yield();
    SPARFUSE_THROW(kInternal, "a kernel failed");
  });
  lost.Record(failed.view());
  StreamWait(other.view(), lost);
  go = true;
  testing::ExpectError(FailureKind::kInternal, {"a kernel failed"}, [&] { lost.Wait(); });
  EXPECT_THROW(Synchronize(other.view()), Error);
  Quiesce(failed.view());
}

TEST_P(GpuRuntime, AnEventPoolMakesNoEventsForAStepLikeTheLast) {
  EventPool pool(device());
  for (int step = 0; step < 3; ++step) {
    const GpuEvent& first = pool.Record(stream());
    const GpuEvent& second = pool.Record(stream());
    second.Wait();
    EXPECT_GE(second.SecondsSince(first), 0);
    EXPECT_EQ(pool.made(), 2u);
    pool.Reset();
  }
}

TEST_P(GpuRuntime, ACompletionThreadTellsOfEventsInOrder) {
  EventPool pool(device());
  std::vector<int> told;
  CompletionThread completions;
  for (int i = 0; i < 3; ++i) {
    completions.Add(pool.Record(stream()), [&told, i](std::exception_ptr error) {
      if (!error) told.push_back(i);
    });
  }
  completions.Drain();
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2}));
}

TEST(CompletionThread, TellsOfErrors) {
  const GpuStream stream(kEmulated);
  EventPool pool(kEmulated);
  std::exception_ptr failure;
  {
    CompletionThread completions;
    std::atomic<bool> go = false;
    emulated::Enqueue(stream.view(), [&] {
      while (!go) std::this_thread::yield();
      SPARFUSE_THROW(kInternal, "a kernel failed");
    });
    completions.Add(pool.Record(stream.view()),
                    [&failure](std::exception_ptr error) { failure = std::move(error); });
    go = true;
    completions.Drain();
  }
  ASSERT_TRUE(failure);
  EXPECT_THROW(std::rethrow_exception(failure), Error);
}

TEST_P(GpuRuntime, AGraphReplaysWhatItRecorded) {
  const DeviceArray<float> x(stream(), std::vector<float>(10, 1));
  const testing::GpuGraph graph(stream(),
                                [&] { ScaleDenseOnDevice(stream(), x.read(), 2, x.view()); });
  EXPECT_EQ(x.ToHost()[9], 1);
  graph.Launch(stream());
  graph.Launch(stream());
  EXPECT_EQ(x.ToHost()[9], 4);
}

TEST_P(GpuRuntime, AGraphRefusesToWaitWhileItRecords) {
  EXPECT_THROW(testing::GpuGraph(stream(), [&] { Synchronize(stream()); }), Error);
  Synchronize(stream());  // the stream still works
}

TEST(GpuMemory, WithoutRoomTheErrorNamesTheAllocation) {
  SetEmulatedMemory(EmulatedMemoryInUse() + 1000);
  { const Buffer<float> fits(200, kEmulated); }
  const std::string message =
      testing::ErrorOf([] { const Buffer<float> large(400, kEmulated, "the residual \"local\""); },
                       FailureKind::kOutOfMemory);
  SetEmulatedMemory(static_cast<std::size_t>(-1));
  EXPECT_SAYS(message, "1600 bytes");
  EXPECT_SAYS(message, "the residual \"local\"");
}

TEST(GpuStatus, SaysWhatItMeansForATrial) {
  EXPECT_EQ(MeaningOf(2).kind, FailureKind::kOutOfMemory);
  EXPECT_EQ(MeaningOf(35).kind, FailureKind::kUnsupported);
  EXPECT_EQ(MeaningOf(100).kind, FailureKind::kUnsupported);
  for (const int lost : {226, 700, 721}) EXPECT_TRUE(MeaningOf(lost).sticky);
  EXPECT_FALSE(MeaningOf(1).sticky);
  CheckStatus(0, "cudaMalloc", "no error");
  testing::ExpectError(FailureKind::kUnsupported, {"cudaSetDevice", "update the driver"}, [] {
    CheckStatus(35, "cudaSetDevice", "CUDA driver version is insufficient");
  });
}

TEST_F(GpuFaults, AnOrdinaryFaultComesOnce) {
  const Buffer<float> x(10, kEmulated);
  const GpuStream stream(kEmulated);
  InjectFault("launch:2:1");
  Launch(stream.view(), 1, AddOne{x.data(), 10});
  testing::ExpectError(FailureKind::kInternal, {}, [&] {
    Launch(stream.view(), 1, AddOne{x.data(), 10});
  });
  Launch(stream.view(), 1, AddOne{x.data(), 10});
}

TEST_F(GpuFaults, AStickyFaultStaysAndSaysThatTheContextIsLost) {
  const GpuStream stream(kEmulated);
  InjectFault("synchronize:1:700");
  testing::ExpectError(FailureKind::kInternal, {"the context is lost"},
                       [&] { Synchronize(stream.view()); });
  const Buffer<float> host(1);
  testing::ExpectError(FailureKind::kInternal, {},
                       [&] { CopyAsync(stream.view(), host.data(), host.data(), 4); });
}

TEST_F(GpuFaults, AFaultThatCannotBeReadIsRefused) {
  for (const char* fault : {"launch", "launch:1", "launch:0:700", "lunch:1:700", "launch:1:x"}) {
    testing::ExpectError(FailureKind::kConfig, {fault}, [&] { InjectFault(fault); });
  }
}

TEST(GpuStream, ABuildWithoutCudaOrAMachineWithoutACardSaysSo) {
  if (CudaDeviceCount() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  testing::ExpectError(FailureKind::kUnsupported, {"sparfuse doctor"}, [] {
    const GpuStream stream(Device{DeviceKind::kCuda, 0});
  });
}

}  // namespace
}  // namespace sparfuse::gpu
