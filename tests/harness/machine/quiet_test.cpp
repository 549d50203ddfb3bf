// Tests when a trial is called disturbed, on readings made by hand.
#include "harness/machine/quiet.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

namespace sparfuse::harness {
namespace {

// Two cores for one second, of which the trial's processes used 1.2.
HostUse TwoCores() {
  HostUse use;
  use.seconds = 1;
  use.cores = 2;
  use.idle_seconds = 0.7;
  use.own_seconds = 1.2;
  return use;
}

TEST(Quiet, OtherWorkIsWhatIsNeitherIdleNorOurs) {
  HostUse use = TwoCores();
  EXPECT_NEAR(OtherCpu(use), 0.05, 1e-12);  // (2 - 0.7 - 1.2) of 2 cores
  use.interrupt_seconds = 0.04;             // nobody's
  use.stolen_seconds = 0.02;                // counted by itself
  EXPECT_NEAR(OtherCpu(use), 0.02, 1e-12);
  use.own_seconds = 1.5;  // readings a little apart
  EXPECT_EQ(OtherCpu(use), 0);
}

// A host of 8 cores of which a container may fill 2: what others do matters once it leaves less.
TEST(Quiet, UnderAQuotaOthersCountAsFarAsTheyLeaveTooLittle) {
  HostUse use;
  use.seconds = 1;
  use.cores = 8;
  use.quota = 2;
  use.own_seconds = 1.5;
  use.idle_seconds = 2.5;  // others: 4 of 8, and 4 are left
  EXPECT_EQ(OtherCpu(use), 0);
  use.idle_seconds = 0;  // others: 6.5, so that 1.5 are left of the 2
  EXPECT_NEAR(OtherCpu(use), 0.25, 1e-12);
  use.quota = 100;  // more than there are
  EXPECT_NEAR(OtherCpu(use), 6.5 / 8, 1e-12);
}

TEST(Quiet, ShortTrialsKnowLessExactly) {
  HostUse use = TwoCores();
  // Three counters, each the difference of two numbers rounded down to 0.01 s.
  EXPECT_NEAR(ResolutionOf(use), 3 * 0.01 * std::sqrt(3 / 6.0) / 2, 1e-12);
  use.intervals = 4;
  EXPECT_NEAR(ResolutionOf(use), 2 * 3 * 0.01 * std::sqrt(3 / 6.0) / 2, 1e-12);
  use.seconds = 0;
  EXPECT_EQ(ResolutionOf(use), 1);
}

RankReadings Rank(const std::string& host, int process, double own, std::vector<double> loops) {
  RankReadings rank;
  rank.host = host;
  rank.process = process;
  rank.seconds = 1;
  rank.cores = 2;
  rank.own_seconds = own;
  rank.ancestors_seconds = 0.1;
  rank.involuntary_switches = 5;
  rank.idle_seconds = 0.2;
  rank.stolen_seconds = 0.04;
  rank.all_seconds = 2;
  rank.pressure_seconds = 0.3;
  rank.load = {{1.0, 2.0}};
  rank.loop_seconds = std::move(loops);
  return rank;
}

TEST(Quiet, RanksOfAHostAddUpAndTheLauncherIsOurs) {
  const Quiet readings =
      QuietReadings({Rank("a", 1, 0.6, {1e-3, 2e-3}), Rank("a", 2, 0.5, {2e-3, 1e-3})});
  // 2 - 0.2 idle - 0.04 stolen - 1.1 ranks - 0.1 launcher, of 2
  EXPECT_NEAR(readings.other_cpu.value(), 0.28, 1e-12);
  EXPECT_NEAR(readings.stolen.value(), 0.02, 1e-12);
  EXPECT_NEAR(readings.own_cpu_seconds, 1.1, 1e-12);
  EXPECT_EQ(readings.involuntary_switches, 10);
  EXPECT_NEAR(readings.pressure.value(), 0.3, 1e-12);
  EXPECT_EQ(readings.loop_seconds, std::vector({2e-3, 2e-3}));
  EXPECT_EQ(readings.load.value(), (std::vector<std::optional<double>>{1, 2}));
}

TEST(Quiet, RanksThatAreThreadsAreCountedOnce) {
  const Quiet readings = QuietReadings({Rank("a", 1, 1.1, {}), Rank("a", 1, 1.1, {})});
  EXPECT_NEAR(readings.other_cpu.value(), 0.28, 1e-12);
  EXPECT_EQ(readings.involuntary_switches, 5);
}

TEST(Quiet, TheMostDisturbedHostSpeaks) {
  const Quiet readings = QuietReadings({Rank("a", 1, 1.6, {}), Rank("b", 1, 0.6, {})});
  EXPECT_NEAR(readings.other_cpu.value(), 0.53, 1e-12);
}

TEST(Quiet, ACounterThatStandsStillTellsNothing) {
  RankReadings rank = Rank("a", 1, 1.1, {1e-3});
  rank.all_seconds = 0;
  const Quiet readings = QuietReadings({rank});
  EXPECT_FALSE(readings.other_cpu);
  EXPECT_EQ(JudgeQuiet(readings, {}, std::nullopt).disturbed, false);
}

Quiet Readings(double other_cpu, double stolen, std::vector<double> loops) {
  Quiet readings;
  readings.other_cpu = other_cpu;
  readings.stolen = stolen;
  readings.resolution = 0.01;
  readings.loop_seconds = std::move(loops);
  return readings;
}

TEST(Quiet, AQuietTrialIsNotDisturbed) {
  const Quiet judged =
      JudgeQuiet(Readings(0.055, 0.025, {1e-3, 1.1e-3, 1e-3, 1e-3}), {}, std::nullopt);
  EXPECT_EQ(judged.disturbed, false) << judged.why;  // within what the counters know
  EXPECT_EQ(judged.why, "");
  EXPECT_EQ(judged.limits->other_cpu, 0.05);
  EXPECT_NEAR(judged.slowdown.value(), 1.025, 1e-12);
}

TEST(Quiet, EachReadingHasItsLimit) {
  Quiet judged = JudgeQuiet(Readings(0.22, 0, {1e-3}), {}, std::nullopt);
  EXPECT_EQ(judged.disturbed, true);
  EXPECT_EQ(judged.why, "other work took 22 % of the cores");
  EXPECT_EQ(judged.causes, (std::map<std::string, double>{{"other_cpu", 0.22}}));
  judged = JudgeQuiet(Readings(0, 0.04, {1e-3}), {}, std::nullopt);
  EXPECT_EQ(judged.why, "the hypervisor took 4 % of the cores");
  // Half of the trial beside a neighbour: mean 1.5 ms, the lower quartile 1 ms.
  judged = JudgeQuiet(Readings(0, 0, {1e-3, 1e-3, 2e-3, 2e-3}), {}, std::nullopt);
  EXPECT_EQ(judged.why, "the cores computed 1.50x slower");
  const QuietLimits loose{.other_cpu = 0.3, .stolen = 0.05, .slowdown = 2};
  EXPECT_EQ(JudgeQuiet(Readings(0.22, 0.04, {1e-3, 1e-3, 2e-3, 2e-3}), loose, {}).disturbed, false);
}

TEST(Quiet, ATrialThatWasSlowThroughoutIsKnownByOthers) {
  const Quiet slow = Readings(0, 0, {2e-3, 2e-3});
  EXPECT_EQ(JudgeQuiet(slow, {}, std::nullopt).disturbed, false);
  EXPECT_EQ(JudgeQuiet(slow, {}, 1.2e-3).disturbed, true);
  EXPECT_EQ(JudgeQuiet(slow, {}, 3e-3).slowdown, 1);  // others were slower
}

// A clock may be too coarse for the loop; nothing is so many times slower than 0 s.
TEST(Quiet, ALoopOfNoTimeTellsNothing) {
  for (const std::vector<double>& loops : {std::vector{0.0, 0.0}, {0.0, 0.0, 0.0, 1e-3}}) {
    const Quiet judged = JudgeQuiet(Readings(0, 0, loops), {}, 1e-3);
    EXPECT_FALSE(judged.slowdown) << judged.why;
    EXPECT_EQ(judged.disturbed, false);
  }
  EXPECT_FALSE(JudgeQuiet(Readings(0, 0, {1e-3}), {}, 0.0).slowdown);
}

TEST(Quiet, WithoutReadingsThereIsNoMean) {
  EXPECT_FALSE(MeanLoopSeconds({}).has_value());
  EXPECT_FALSE(Undisturbed({}).has_value());
}

class Cards : public ::testing::Test {
 protected:
  Cards() {
    GpuCard card;
    card.uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    report_.cards = {card, card};
    report_.cards[1].uuid = "GPU-ffffffff-4455-6677-8899-aabbccddeeff";
  }
  QuietCards Read(std::vector<int> own) const {
    return CardReadings(report_, {"00112233445566778899aabbccddeeff"}, own);
  }

  GpuReport report_;
};

TEST_F(Cards, ProcessesOfOthersDisturbThoseOfTheTrialDoNot) {
  const auto self = static_cast<unsigned>(getpid());
  report_.cards[0].processes = {{self, "sparfuse-worker", {}}};
  report_.cards[1].processes = {{1, "elsewhere", {}}};
  EXPECT_EQ(Read({static_cast<int>(self)}).other_processes, std::vector<std::string>());
  report_.cards[0].processes.push_back({1, "init", {}});
  Quiet readings = Readings(0, 0, {});
  readings.cards = Read({static_cast<int>(self)});
  const Quiet judged = JudgeQuiet(readings, {}, {});
  EXPECT_EQ(judged.why, "other processes were on the card: init (1)");
}

TEST_F(Cards, ProcessesOfAnotherNamespaceCountBeyondTheTrialsOwn) {
  const unsigned none = 4'200'000;  // beyond the largest that Linux gives
  report_.cards[0].processes = {{none, "", {}}};
  EXPECT_EQ(Read({1}).other_processes, std::vector<std::string>());  // it may be the rank itself
  report_.cards[0].processes.push_back({none + 1, "", {}});
  EXPECT_EQ(Read({1}).other_processes.size(), 1u);
}

TEST_F(Cards, AClockHeldDownByHeatDisturbsAPowerCapDoesNot) {
  report_.cards[0].throttle_reasons = 0x1 | 0x4;
  EXPECT_EQ(Read({}).held_down_by, std::vector<std::string>());
  report_.cards[0].throttle_reasons = 0x4 | 0x40;
  Quiet readings = Readings(0, 0, {});
  readings.cards = Read({});
  EXPECT_EQ(JudgeQuiet(readings, {}, {}).why,
            "the card's clock was held down: hot (hardware slowdown)");
}

}  // namespace
}  // namespace sparfuse::harness
