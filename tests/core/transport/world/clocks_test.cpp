// Tests the comparison of clocks with ranks whose clocks are set wrong and run wrong.
#include "core/transport/world/clocks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "core/collective/collective.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kRounds = 40;

// Of rank r: `ahead` seconds ahead of rank 0's when this began, gaining `gain` seconds a second.
struct WrongClock {
  double ahead = 0, gain = 0;
  double begun = MonotonicSeconds();

  double Show(double true_seconds) const {
    return true_seconds + ahead + gain * (true_seconds - begun);
  }
  double TrueSeconds(double shown) const { return begun + (shown - ahead - begun) / (1 + gain); }
};

struct Compared {
  std::vector<WrongClock> clocks;
  std::vector<ClockLine> lines;
};

// Of four ranks, each a clock of its own; rank 3 takes no part.
Compared Compare(std::chrono::milliseconds between) {
  Compared compared{{{}, {1000.5, 0}, {-20, 0.01}, {7, 0}}, std::vector<ClockLine>(4)};
  RunRanks(4, 1, 10s, [&](ProgressLoop& loop) {
    const auto r = static_cast<std::size_t>(loop.rank());
    const ClockSource clock = [&] { return compared.clocks[r].Show(MonotonicSeconds()); };
    const std::array others = {1, 2};
    const auto read = [&](ClockReading& reading) {
      loop.RunBlocking([&](Communicator& world) {
        return CompareClocks(world, others, kRounds, 3, clock, reading);
      });
    };
    read(compared.lines[r].before);
    std::this_thread::sleep_for(between);
    read(compared.lines[r].after);
    loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
  });
  return compared;
}

TEST(Clocks, OffsetsAreRightWithinTheirUncertainty) {
  const Compared compared = Compare(0ms);
  for (const std::size_t rank : {1, 2}) {
    const ClockReading& reading = compared.lines[rank].before;
    // The moment on the true clock, which is rank 0's.
    const double moment = compared.clocks[rank].TrueSeconds(reading.at_seconds);
    const double truth = moment - reading.at_seconds;
    EXPECT_GT(reading.uncertainty_seconds, 0);
    EXPECT_LT(reading.uncertainty_seconds, 1);
    EXPECT_NEAR(reading.offset_seconds, truth, reading.uncertainty_seconds) << rank;
  }
  for (const std::size_t rank : {0, 3}) {
    EXPECT_EQ(compared.lines[rank].before.offset_seconds, 0);
    EXPECT_EQ(compared.lines[rank].before.uncertainty_seconds, 0);
  }
}

TEST(Clocks, DriftIsFoundWithinItsUncertainty) {
  const Compared compared = Compare(200ms);
  for (const std::size_t rank : {1, 2}) {
    const ClockLine& line = compared.lines[rank];
    const double gain = compared.clocks[rank].gain;
    EXPECT_NEAR(line.drift(), -gain / (1 + gain), line.drift_uncertainty()) << rank;
    // In the middle, too, rank 0's time is known.
    const double shown = (line.before.at_seconds + line.after.at_seconds) / 2;
    EXPECT_NEAR(line.OnRankZero(shown), compared.clocks[rank].TrueSeconds(shown),
                line.uncertainty_seconds());
  }
}

TEST(Clocks, ALineIsStraightBetweenItsReadings) {
  // Rank 0's clock is 5 s ahead at 100 s and 5.2 s ahead at 300 s: it gains a millisecond a second.
  const ClockLine line{{100, 5, 0.1}, {300, 5.2, 0.3}};
  EXPECT_NEAR(line.drift(), 1e-3, 1e-12);
  EXPECT_NEAR(line.drift_uncertainty(), 0.4 / 200, 1e-12);
  EXPECT_NEAR(line.OnRankZero(200), 205.1, 1e-9);
  EXPECT_EQ(line.uncertainty_seconds(), 0.3);
  const ClockLine same;
  EXPECT_EQ(same.OnRankZero(7), 7);
  EXPECT_EQ(same.drift_uncertainty(), 0);
}

}  // namespace
}  // namespace sparfuse::testing
