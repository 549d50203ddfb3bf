// What exchanges of a device's memory are staged in.
#include <gtest/gtest.h>

#include "core/device/event_pool.hpp"
#include "core/engine/live/exchange_staging.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse {
namespace {

TEST(DeviceStaging, BuffersThatGrowALittleEveryStepAreSeldomMadeAgain) {
  testing::RunRanks(1, 1, testing::kLiveDeadline, [](ProgressLoop& loop) {
    gpu::EventPool events(testing::kEmulated);
    const Buffer<float> flat(1000, testing::kEmulated, "the packed gradient");
    const auto staging =
        MakeDeviceStaging({{}, 1, flat.view(Stream{testing::kEmulated, nullptr})}, loop, events);
    Op exchange;
    exchange.kind = OpKind::kExchange;
    ExchangeState state;
    std::vector<std::size_t> made;
    for (std::size_t n = 100; n <= 400; ++n) {
      exchange.range = {0, n};
      exchange.parts = {exchange.range};
      loop.RunBlocking(
          [&](Communicator& world) { return staging->Gather(world, exchange, state); });
      EXPECT_EQ(state.buffers.dense.size(), n);
      const std::size_t size = state.device.dense.size();
      if (made.empty() || made.back() != size) made.push_back(size);
    }
    EXPECT_EQ(made, (std::vector<std::size_t>{100, 150, 225, 337, 505}));
  });
}

}  // namespace
}  // namespace sparfuse
