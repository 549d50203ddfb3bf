// Tests the rate that is measured of an emulated link, on ranks that are threads.
#include <gtest/gtest.h>

#include <chrono>

#include "core/transport/shaped/shaped.hpp"
#include "harness/worker/rank/quiet_monitor.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::chrono::seconds kDeadline{20};

// The rates of all ranks for a cell that says `label`, over links that are `real`.
std::vector<std::optional<double>> Rates(int ranks, int ranks_per_node, const LinkShape& label,
                                         const LinkShape& real) {
  CellConfig config;
  config.workers = ranks;
  config.ranks_per_node = ranks_per_node;
  config.link = label;
  std::vector<std::optional<double>> rates(static_cast<std::size_t>(ranks));
  const std::filesystem::path nowhere;
  sparfuse::testing::RunRanks(
      ranks, ranks_per_node, kDeadline,
      [&](ProgressLoop& loop) {
        ThreadPool pool(1);
        const Rank rank{config, 1, nowhere, loop, pool};
        const LinkMeter meter(rank);
        EXPECT_TRUE(meter.HasLink());
        rates[static_cast<std::size_t>(rank.rank())] = meter.Gbps();
      },
      [&](std::unique_ptr<Communicator> world) {
        NetworkShape shape{{real.gbps, 1e-6 * real.alpha_us}};
        if (real.has_within()) shape.within = {real.intra_node_gbps, 1e-6 * real.intra_node_us};
        return MakeShaped(std::move(world), shape, kDeadline);
      });
  return rates;
}

// No emulated message arrives earlier than its link lets it, so that a rate has this upper bound on
// the busiest host.
TEST(LinkMeter, FindsALinkThatIsSlowerThanItsLabel) {
  const auto rates = Rates(3, 1, {.gbps = 0.05, .alpha_us = 200}, {.gbps = 0.01, .alpha_us = 200});
  ASSERT_TRUE(rates.front());
  EXPECT_GT(*rates.front(), 0);
  EXPECT_LE(*rates.front(), 0.01 * (1 + 1e-3));
  for (const auto& rate : rates) EXPECT_EQ(rate, rates.front());
}

TEST(LinkMeter, MeasuresBetweenNodesElseWithinThem) {
  const LinkShape both{
      .gbps = 0.01, .alpha_us = 200, .host_us = 0, .intra_node_gbps = 0.02, .intra_node_us = 200};
  const auto between = Rates(4, 2, both, both), within = Rates(2, 2, both, both);
  ASSERT_TRUE(between.front() && within.front());
  EXPECT_LE(*between.front(), 0.01 * (1 + 1e-3));  // one rank of a node sends
  EXPECT_LE(*within.front(), 0.02 * (1 + 1e-3));
}

// A start-up of half a second leaves no time, and no clock tells how fast a Tbit/s is.
TEST(LinkMeter, LeavesOutWhatItCannotMeasureInTime) {
  const LinkShape slow{.gbps = 1, .alpha_us = 500'000}, fast{.gbps = 1000, .alpha_us = 200};
  for (const LinkShape& label : {slow, fast}) {
    const auto rates = Rates(2, 1, label, {.gbps = 0.1, .alpha_us = 200});
    for (const auto& rate : rates) EXPECT_FALSE(rate);
  }
}

TEST(LinkMeter, IsOfEmulatedTrialsOfSeveralRanks) {
  CellConfig config;
  sparfuse::testing::RunRanks(1, 1, kDeadline, [&](ProgressLoop& loop) {
    ThreadPool pool(1);
    const std::filesystem::path nowhere;
    config.link = LinkShape{.gbps = 1, .alpha_us = 200};
    EXPECT_FALSE(LinkMeter(Rank{config, 1, nowhere, loop, pool}).HasLink());
  });
}

}  // namespace
}  // namespace sparfuse::harness
