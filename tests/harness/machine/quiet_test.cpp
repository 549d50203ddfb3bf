// Tests the readings of other work on the processors, and when it disturbed a trial.
#include "harness/machine/quiet.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

namespace sparfuse::harness {
namespace {

// Two cores for one second, 1.2 s of which the trial's processes used.
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
  use.interrupt_seconds = 0.04;             // belongs to nobody
  use.stolen_seconds = 0.02;                // counted separately
  EXPECT_NEAR(OtherCpu(use), 0.02, 1e-12);
  use.own_seconds = 1.5;  // the readings are slightly apart
  EXPECT_EQ(OtherCpu(use), 0);
}

// A container may fill 2 of a host's 8 cores: others matter only if they leave less than that.
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
  use.quota = 100;  // more than the host has
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
  EXPECT_EQ(judged.disturbed, false) << judged.why;  // within the counters' resolution
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
  // A neighbour is active during half of the trial: mean 1.5 ms, lower quartile 1 ms.
  judged = JudgeQuiet(Readings(0, 0, {1e-3, 1e-3, 2e-3, 2e-3}), {}, std::nullopt);
  EXPECT_EQ(judged.why, "the cores computed 1.50x slower");
  const QuietLimits loose{.other_cpu = 0.3, .stolen = 0.05, .slowdown = 2};
  EXPECT_EQ(JudgeQuiet(Readings(0.22, 0.04, {1e-3, 1e-3, 2e-3, 2e-3}), loose, {}).disturbed, false);
}

TEST(Quiet, ALinkOffItsLabelOrThatChangesDisturbs) {
  const auto judged = [](std::optional<double> before, std::optional<double> after) {
    Quiet readings = Readings(0, 0, {1e-3});
    readings.link = {10, before, after};
    return JudgeQuiet(readings, {}, std::nullopt);
  };
  using Causes = std::map<std::string, double>;
  EXPECT_EQ(judged(9.6, 9.7).disturbed, false);
  EXPECT_EQ(judged(std::nullopt, std::nullopt).disturbed, false);  // not measured
  EXPECT_EQ(judged(9, 9).why, "the link was 10 % slower than its label");
  EXPECT_NEAR(judged(9, 9).causes.at("link"), -0.1, 1e-12);
  EXPECT_EQ(judged(std::nullopt, 12).why, "the link was 20 % faster than its label");
  EXPECT_EQ(judged(10.4, 9.6).why, "the link became 8 % slower during the trial");
  EXPECT_EQ(judged(10, 8).why,
            "the link was 20 % slower than its label; the link became 20 % slower during the "
            "trial");
  Quiet loose = Readings(0, 0, {1e-3});
  loose.link = {10, 8, 8};
  EXPECT_EQ(JudgeQuiet(loose, {.link = 0.25}, std::nullopt).causes, Causes());
}

// Limits and readings of trials that have no link are written as before there were any.
TEST(Quiet, TrialsWithoutALinkSayNothingOfOne) {
  const nlohmann::json plain = ToJson(JudgeQuiet(Readings(0, 0, {1e-3}), {}, std::nullopt));
  EXPECT_FALSE(plain.contains("link"));
  EXPECT_FALSE(plain.at("limits").contains("link"));
  Quiet readings = Readings(0, 0, {1e-3});
  readings.link = {10, 9.9, std::nullopt};
  const Quiet judged = JudgeQuiet(readings, {.link = 0.1}, std::nullopt);
  EXPECT_EQ(ToJson(judged).at("link"),
            (nlohmann::json{{"label_gbps", 10}, {"before_gbps", 9.9}, {"after_gbps", nullptr}}));
  EXPECT_EQ(QuietOf(ToJson(judged)), judged);
}

TEST(Quiet, ATrialThatWasSlowThroughoutIsKnownByOthers) {
  const Quiet slow = Readings(0, 0, {2e-3, 2e-3});
  EXPECT_EQ(JudgeQuiet(slow, {}, std::nullopt).disturbed, false);
  EXPECT_EQ(JudgeQuiet(slow, {}, 1.2e-3).disturbed, true);
  EXPECT_EQ(JudgeQuiet(slow, {}, 3e-3).slowdown, 1);  // others were slower
}

// A clock may be too coarse for the loop: there is no ratio to 0 s.
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
  const unsigned none = 4'200'000;  // beyond Linux's largest process id
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

// Ticks of 10 ms, the same on every Linux.
constexpr const char* kStat =
    "cpu  900 0 300 5000 70 2 8 30 0 0\n"
    "cpu0 100 10 50 1000 20 1 2 10 0 0\n"
    "cpu1 300 0 100 2000 30 0 5 20 0 0\n"
    "cpu11 500 0 150 2000 20 1 1 0 0 0\n"
    "intr 1 2 3\nctxt 12\n";

TEST(CpuUse, CountsTheCoresThatMayBeUsed) {
  const auto both = ParseProcStat(kStat, {0, 11});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->cores, 2);
  EXPECT_DOUBLE_EQ(both->idle_seconds, (1000 + 20 + 2000 + 20) / 100.0);
  EXPECT_DOUBLE_EQ(both->interrupt_seconds, (1 + 2 + 1 + 1) / 100.0);
  EXPECT_DOUBLE_EQ(both->stolen_seconds, 10 / 100.0);
  EXPECT_DOUBLE_EQ(both->all_seconds, (1193 + 2672) / 100.0);
  const auto one = ParseProcStat(kStat, {1});
  ASSERT_TRUE(one.has_value());
  EXPECT_DOUBLE_EQ(one->idle_seconds, 20.3);
}

TEST(CpuUse, KnowsNothingOfWhatTheTextLacks) {
  EXPECT_FALSE(ParseProcStat("", {0}).has_value());
  EXPECT_FALSE(ParseProcStat(kStat, {2}).has_value());
  EXPECT_FALSE(ParseProcStat("cpu 1 2 3\nintr 0\n", {0}).has_value());
  const auto old = ParseProcStat("cpu0 1 2 3 400\n", {0});  // without the fields of later kernels
  ASSERT_TRUE(old.has_value());
  EXPECT_DOUBLE_EQ(old->idle_seconds, 4);
  EXPECT_DOUBLE_EQ(old->stolen_seconds, 0);
}

TEST(CpuUse, ReadsPressure) {
  EXPECT_DOUBLE_EQ(*ParsePressure("some avg10=2.83 avg60=15.95 avg300=27.81 total=525416591\n"
                                  "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
                   525.416591);
  EXPECT_FALSE(ParsePressure("").has_value());
  EXPECT_FALSE(ParsePressure("some avg10=2.83\nfull total=7\n").has_value());
}

TEST(CpuUse, ReadsTheQuotaOfACgroup) {
  EXPECT_DOUBLE_EQ(*ParseQuota("250000 100000\n"), 2.5);
  EXPECT_FALSE(ParseQuota("max 100000\n").has_value());
  EXPECT_FALSE(ParseQuota("-1\n 100000\n").has_value());  // version 1: no limit
  EXPECT_FALSE(ParseQuota(" ").has_value());
}

TEST(CpuUse, ReadsAProcessWhoseNameHasBrackets) {
  const auto process = ParseProcessStat(
      "17230 (a) b (c) R 17188 17187 9424 0 -1 4194304 105 0 0 0 250 50 9 9 20 0 1 0 199979\n");
  ASSERT_TRUE(process.has_value());
  EXPECT_EQ(process->parent, 17188);
  EXPECT_DOUBLE_EQ(process->cpu_seconds, 3);
  EXPECT_FALSE(ParseProcessStat("").has_value());
  EXPECT_FALSE(ParseProcessStat("1 (init) S 0 0").has_value());
}

// Busy time is all time that is not idle: it includes this thread's own work, whatever others do.
TEST(CpuUse, SeesWorkOnThisMachine) {
  const auto begin = std::chrono::steady_clock::now();
  const CpuUse before = ReadCpuUse();
  while (ReadCpuUse().own_cpu_seconds - before.own_cpu_seconds < 0.3) ReferenceLoopSeconds();
  const CpuUse after = ReadCpuUse();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!before.times || after.times->all_seconds == before.times->all_seconds)
    GTEST_SKIP() << "/proc/stat does not count here";
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  EXPECT_EQ(after.times->cores, CPU_COUNT(&usable));
  const double idle = after.times->idle_seconds - before.times->idle_seconds;
  EXPECT_GE(after.times->cores * seconds - idle, 0.3 - 0.02 * after.times->cores);
}

TEST(CpuUse, NothingIsSaidOfATimeInWhichACounterFell) {
  const CoreTimes before{2, 10.0, 1.0, 0.5, 100.0};
  const auto added = Between(before, CoreTimes{2, 11.0, 1.25, 0.5, 102.0});
  ASSERT_TRUE(added);
  EXPECT_EQ(added->idle_seconds, 1.0);
  EXPECT_EQ(added->interrupt_seconds, 0.25);
  EXPECT_EQ(added->stolen_seconds, 0);
  EXPECT_EQ(added->all_seconds, 2.0);
  EXPECT_FALSE(Between(before, CoreTimes{2, 8.5, 1.0, 0.5, 101.0}));
  EXPECT_FALSE(Between(before, CoreTimes{2, 11.0, 1.0, 0.25, 102.0}));
  EXPECT_FALSE(Between(std::nullopt, before));
}

TEST(ReferenceLoop, TakesProcessorTimeOfOneLength) {
  const double one = ReferenceLoopSeconds();
  EXPECT_GT(one, 1e-5);
  EXPECT_LT(one, 1e-1);
}

}  // namespace
}  // namespace sparfuse::harness
