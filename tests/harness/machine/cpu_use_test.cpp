// Tests what is read of the kernel's counters, by hand.
#include "harness/machine/cpu_use.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>

#include "harness/machine/reference_loop.hpp"

namespace sparfuse::harness {
namespace {

// Ticks of 10 ms, which Linux has everywhere.
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
  const auto old = ParseProcStat("cpu0 1 2 3 400\n", {0});  // without what later kernels tell
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

// Busy time is what is not idle: this thread's own work is in it, whatever others do.
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
