// Tests the staging buffers for exchanges of device memory.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

TEST(DeviceStaging, BuffersThatGrowALittleEveryStepAreSeldomMadeAgain) {
  RunRanks(1, 1, kLiveDeadline, [](ProgressLoop& loop) {
    gpu::EventPool events(kEmulated);
    const Buffer<float> flat(1000, kEmulated, "the packed gradient");
    const GradientLayout layout = LayoutOf({1000});
    const FlatPlaces places(layout, {}, /*by_fragment=*/false);
    const auto staging =
        MakeDeviceStaging({{}, 1, flat.view(Stream{kEmulated, nullptr}), places}, loop, events);
    Op exchange{.request = ExchangeRequest{}};
    ExchangeState state;
    state.op = &exchange;
    std::vector<std::size_t> made;
    for (std::size_t n = 100; n <= 400; ++n) {
      exchange.parts = {{0, n}};
      loop.RunBlocking([&](Communicator& world) { return staging->Gather(world, state); });
      EXPECT_EQ(state.buffers.dense.size(), n);
      const std::size_t size = state.device.dense.size();
      if (made.empty() || made.back() != size) made.push_back(size);
    }
    EXPECT_EQ(made, (std::vector<std::size_t>{100, 150, 225, 337, 505}));
  });
}

// A collective that sums may return more elements than one rank can send: the union of all ranks'
// selections.
TEST(DeviceStaging, APayloadOfSumsMayBeLongerThanOneRankMaySend) {
  RunRanks(1, 1, kLiveDeadline, [](ProgressLoop& loop) {
    constexpr std::size_t kSummed = 50;
    constexpr std::size_t kCapacity = 20;  // of one rank of three
    gpu::EventPool events(kEmulated);
    const Buffer<float> flat(1000, kEmulated, "the packed gradient");
    const GradientLayout layout = LayoutOf({1000});
    const FlatPlaces places(layout, {}, /*by_fragment=*/false);
    const auto staging =
        MakeDeviceStaging({{}, 3, flat.view(Stream{kEmulated, nullptr}), places}, loop, events);
    std::vector<std::byte> sums(kSummed * kSparseElementBytes);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<std::byte>(i);
    Op exchange{.request = ExchangeRequest{.pattern = SparseSum{{1}}}, .parts = {{0, flat.size()}}};
    ExchangeState state;
    state.op = &exchange;
    state.payload.capacity = kCapacity;
    state.buffers.capacity_bytes = kCapacity * kSparseElementBytes;
    state.buffers.payloads = {sums};
    loop.RunBlocking([&](Communicator& world) { return staging->Deliver(world, state); });
    state.device.ready->Wait();
    ASSERT_GE(state.device.received.size(), sums.size());
    ASSERT_EQ(state.device.payloads.size(), 1u);
    EXPECT_EQ(state.device.payloads[0].count, kSummed);
    const std::byte* const received = state.device.received.data();  // emulated: host memory
    EXPECT_EQ(std::vector<std::byte>(received, received + sums.size()), sums);
  });
}

}  // namespace
}  // namespace sparfuse::testing
