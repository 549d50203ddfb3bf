// Tests when a launch is ended before its time is up.
#include "harness/run/live/launch/launch_watch.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

class Watch : public ::testing::Test {
 protected:
  Watch() {
    for (const fs::path& directory : directories_) fs::create_directories(directory);
  }
  void Write(std::size_t trial, const std::string& name, const std::string& text = "") const {
    std::ofstream(directories_[trial] / name) << text;
  }
  void Say(const std::string& text) { LaunchLines(said_).Take(text); }
  std::string Why(LaunchWatch& watch, double seconds) { return watch.WhyToEnd(seconds, said_); }

  TemporaryFolder folder_;
  std::vector<fs::path> directories_ = {folder_.path() / "a", folder_.path() / "b"};
  PhaseLimits limits_{.start = 10, .after_failure = 2, .after_results = 5};
  LaunchSaid said_;
};

TEST_F(Watch, RanksHaveToMeet) {
  LaunchWatch late(directories_, true, limits_), watch(directories_, true, limits_);
  EXPECT_EQ(Why(watch, 9), "");
  Say("srun: warning\n");
  EXPECT_EQ(Why(late, 11), "ranks did not meet within 10 s of the launch");
  EXPECT_TRUE(late.start_was_late());
  Say(fmt::format("{}4\n", kMetLine));
  EXPECT_EQ(Why(watch, 12), "");
  EXPECT_EQ(Why(watch, 100), "");
  LaunchSaid nothing;
  EXPECT_EQ(LaunchWatch(directories_, false, limits_).WhyToEnd(100, nothing), "");
}

TEST_F(Watch, AllEndSoonAfterAFailure) {
  LaunchWatch watch(directories_, false, limits_);
  EXPECT_EQ(Why(watch, 1), "");
  Write(1, "failure-rank3.json", "{}");
  EXPECT_EQ(Why(watch, 7), "");
  EXPECT_EQ(Why(watch, 9), "");
  EXPECT_EQ(Why(watch, 9.5), "others did not end within 2 s after a rank failed");
}

// Ranks on other hosts may leave their files there.
TEST_F(Watch, FailuresAndResultsAreHeardOfWhereNoFolderIsShared) {
  LaunchWatch watch(directories_, true, limits_), other(directories_, true, limits_);
  Say(fmt::format("{}4\n{}a\n", kMetLine, kResultLine));
  EXPECT_EQ(Why(watch, 1), "");
  EXPECT_EQ(Why(watch, 50), "");
  Say(fmt::format("{}b\n", kResultLine));
  EXPECT_EQ(Why(watch, 51), "");
  EXPECT_EQ(Why(watch, 57), "ranks did not end within 5 s after the last result");
  Say(FailureLine(3, "comm", "rank 1 does not answer") + "\n");
  EXPECT_EQ(Why(other, 57), "");
  EXPECT_EQ(Why(other, 59.5), "others did not end within 2 s after a rank failed");
}

TEST_F(Watch, AllEndSoonAfterTheLastResult) {
  LaunchWatch watch(directories_, false, limits_);
  Write(0, "outcome.json");
  EXPECT_EQ(Why(watch, 1), "");
  EXPECT_EQ(Why(watch, 50), "");
  Write(1, "outcome.json");
  EXPECT_EQ(Why(watch, 51), "");
  EXPECT_EQ(Why(watch, 57), "ranks did not end within 5 s after the last result");
}

TEST_F(Watch, RanksSaySomethingAsOftenAsATrialMayTake) {
  limits_.silence = 20;
  LaunchWatch watch(directories_, true, limits_);
  Say(fmt::format("{}4\n", kMetLine));
  EXPECT_EQ(Why(watch, 5), "");
  EXPECT_EQ(Why(watch, 28), "");  // set-up
  Say("measuring dense, round 1 of 4\n");
  EXPECT_EQ(Why(watch, 30), "");
  EXPECT_EQ(Why(watch, 49), "");
  for (const int megabytes : {30, 3}) {  // more than a log keeps
    Say(std::string(static_cast<std::size_t>(megabytes) << 20, 'x'));
    EXPECT_EQ(Why(watch, 90 - megabytes), "");
  }
  EXPECT_EQ(Why(watch, 108),
            "ranks said nothing for 20 s, the longest that a trial of this launch may take");
}

TEST_F(Watch, RanksThatHaveMetMeasureSoon) {
  limits_.setup = 20;
  LaunchWatch watch(directories_, true, limits_), measuring(directories_, true, limits_);
  EXPECT_EQ(Why(watch, 5), "");
  Say(fmt::format("{}4\n", kMetLine));
  for (const double seconds : {9, 28}) EXPECT_EQ(Why(watch, seconds), "");
  EXPECT_EQ(Why(measuring, 9), "");
  EXPECT_EQ(Why(watch, 30),
            "ranks made no step within 20 s of their meeting, the longest that a trial of this "
            "launch may take");
  Say("measuring 12 steps\n");
  EXPECT_EQ(Why(measuring, 100), "");
}

TEST_F(Watch, TheStartMayBeGivenMoreTime) {
  for (const auto& [text, seconds] : {std::pair("", 120.0), {"7.5", 7.5}}) {
    setenv("SPARFUSE_START_SECONDS", text, 1);
    EXPECT_EQ(PhaseLimits::OfEnvironment().start, seconds);
  }
  for (const char* text : {"0", "-1", "soon", "1s", "nan"}) {
    setenv("SPARFUSE_START_SECONDS", text, 1);
    testing::ExpectIn(std::string("SPARFUSE_START_SECONDS=") + text,
                      testing::ErrorOf([] { PhaseLimits::OfEnvironment(); }));
  }
  unsetenv("SPARFUSE_START_SECONDS");
}

// The labels that mpirun --tag-output, srun --label and the logs of pods put before lines.
TEST(LaunchLines, LabelsOfLaunchersArePassedOver) {
  for (const std::string label : {"", "[1,0]<stdout>:", "0: ", "01: ", "[t-launcher] ",
                                  "Tue Nov 24 13:00:00 2026<stdout>:"}) {
    LaunchSaid said;
    LaunchLines lines(said);
    lines.Take(label + "ranks have");  // output arrives in pieces
    EXPECT_FALSE(said.met);
    lines.Take(fmt::format(" met: 4\n{0}measuring dense, round 1 of 4\n{0}{1}a-b0-1\n{0}{2}\n",
                           label, kResultLine, FailureLine(12, "out_of_memory", "too: little")));
    EXPECT_TRUE(said.met && said.measures) << label;
    EXPECT_EQ(said.results, 1u);
    EXPECT_EQ(said.failures, 1);
  }
}

TEST(LaunchLines, OthersAreNoneOfThem) {
  LaunchSaid said;
  LaunchLines lines(said);
  for (const std::string line :
       {"no ranks have met: 4", "stopped measuring it", "rank 1: no data", "rank x: comm error: y",
        "rank 1: an internal error: y", "the rank 1: comm error: y"})
    lines.Take(line + "\n");
  std::string too_long(3'000'000, '>');
  lines.Take(too_long.append(kMetLine).append("4\n"));
  EXPECT_FALSE(said.met || said.measures);
  EXPECT_EQ(said.failures, 0);
}

}  // namespace
}  // namespace sparfuse::harness
