// Tests which trials share a launch, how they take turns, and which one is blamed for its end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/store/step_log.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
namespace fs = std::filesystem;

TEST(Rounds, OfAtMostThreeMeasuredStepsEach) {
  EXPECT_EQ(StepsOfRounds(15), (std::vector<int>{3, 3, 3, 3, 3}));
  EXPECT_EQ(StepsOfRounds(16), (std::vector<int>{3, 3, 3, 3, 2, 2}));
  EXPECT_EQ(StepsOfRounds(4), (std::vector<int>{2, 2}));
  EXPECT_EQ(StepsOfRounds(1), (std::vector<int>{1}));
}

TEST(Rounds, AreOfWholeWindows) {
  EXPECT_EQ(StepsOfRounds(24, 8), (std::vector<int>{8, 8, 8}));
  EXPECT_EQ(StepsOfRounds(6, 1), StepsOfRounds(6));
  EXPECT_EQ(StepsOfRounds(4, 2), (std::vector<int>{2, 2}));
}

TEST(Rounds, EachHasEveryTrialOnceInAnOrderThatTheSeedShuffles) {
  const auto orders = OrderOfRounds(6, 5, 3);
  ASSERT_EQ(orders.size(), 5u);
  for (auto order : orders) {
    std::ranges::sort(order);
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  }
  EXPECT_EQ(orders, OrderOfRounds(6, 5, 3));  // every rank computes the same
  EXPECT_NE(orders, OrderOfRounds(6, 5, 4));
  EXPECT_NE(orders[0], orders[1]);
}

// The slower one of two ranks counts; discarded steps and warm-up belong to no round.
TEST(Rounds, AreSummedUpByTheMedianOfTheirMeasuredSteps) {
  const auto step = [](bool measured, int round, double seconds) {
    LoggedStep logged;
    logged.measured = measured;
    logged.round = round;
    logged.record.step_seconds = seconds;
    return logged;
  };
  const std::vector<LoggedStep> one = {step(false, 0, 9), step(false, 1, 8), step(true, 1, 3),
                                       step(true, 1, 1),  step(true, 1, 2),  step(false, 2, 7),
                                       step(true, 2, 5)};
  std::vector<LoggedStep> other = one;
  other[2].record.step_seconds = 6;
  other[4].record.step_seconds = 4;
  EXPECT_EQ(RoundSeconds({one, other}), (std::vector<double>{4, 5}));  // medians of 6, 1, 4; of 5
  EXPECT_TRUE(RoundSeconds({{step(true, 0, 1)}}).empty());
}

class SharedLaunch : public ::testing::Test {
 protected:
  // A trial of each of "dense", "wfbp" and "syncea", in a file with the lines `more`.
  std::vector<PlannedTrial> Planned(const std::string& more) {
    experiment_ = ParseExperiment(
        TomlFile::Parse("id = \"t\"\n[defaults]\nworkload = \"digits-resnet\"\n" + more +
                            "[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n",
                        "t.toml"),
        catalog_, "/nonexistent");
    PlanContext context{catalog_, store_, {.machine = Node()}};
    context.memory = memory_;
    plan_ = PlanLive(context, {experiment_}, rows_);
    return plan_.trials;
  }

  std::vector<std::size_t> SizesOfLaunches(std::span<const PlannedTrial> trials) const {
    std::vector<std::size_t> sizes;
    for (; !trials.empty(); trials = trials.subspan(sizes.back()))
      sizes.push_back(FirstLaunch(trials).size());
    return sizes;
  }

  using Sizes = std::vector<std::size_t>;
  TemporaryFolder folder_;
  Store store_{folder_.path()};
  Catalog catalog_ = SmallCatalog();
  Experiment experiment_;
  std::vector<TrialRow> rows_;
  LaunchMemory memory_{64e9, 0};
  TrialPlan plan_;
};

constexpr const char* kLive = "mode = \"measured\"\nworkers = 2\n";

TEST_F(SharedLaunch, HasTheMethodsOfABlock) {
  const auto trials = Planned(std::string(kLive) + "[repeat]\nblocks = 2\n");
  EXPECT_EQ(SizesOfLaunches(trials), (Sizes{3, 3}));
  EXPECT_EQ(trials[0].block, 0);
  EXPECT_EQ(trials[3].block, 1);
}

TEST_F(SharedLaunch, IsOfOneLinkTransportAndNumberOfRanks) {
  EXPECT_EQ(SizesOfLaunches(Planned("mode = \"measured\"\n[[axis]]\nworkers = [1, 2]\n")),
            (Sizes{3, 3}));
  EXPECT_EQ(SizesOfLaunches(
                Planned(std::string(kLive) + "[[axis]]\ntransport = [\"mpi\", \"threads\"]\n")),
            (Sizes{3, 3}));
  EXPECT_EQ(SizesOfLaunches(Planned("mode = \"emulated\"\nworkers = 2\n[[axis]]\nlink = [{ gbps = "
                                    "1, alpha_us = 100 }, { gbps = 2, alpha_us = 100 }]\n")),
            (Sizes{3, 3}));
  // Values of a single trial may differ.
  EXPECT_EQ(SizesOfLaunches(Planned(std::string(kLive) + "[[axis]]\nsteps = [3, 30]\n")),
            (Sizes{6}));
}

TEST_F(SharedLaunch, IsNotForConvergenceNorWhereTheFileSaysNo) {
  EXPECT_EQ(SizesOfLaunches(Planned(std::string(kLive) + "kind = \"convergence\"\n")),
            (Sizes{1, 1, 1}));
  EXPECT_EQ(SizesOfLaunches(Planned(std::string(kLive) + "[repeat]\ninterleave = false\n")),
            (Sizes{1, 1, 1}));
}

TEST_F(SharedLaunch, LeavesOutWhatTheStoreHas) {
  auto trials = Planned(kLive);
  TrialRow row;
  row.config = ToJson(trials[1].config);
  row.config_hash = trials[1].config_hash;
  row.system = ToJson(trials[1].system);
  row.system_hash = ContentHash(row.system);
  row.revisions = nlohmann::json(trials[1].revisions);
  row.provenance = {{"sources", trials[1].sources}};
  row.status = "ok";
  rows_ = {row};
  EXPECT_EQ(SizesOfLaunches(Planned(kLive)), (Sizes{2}));
}

TEST_F(SharedLaunch, NeedsMemoryForAllAndThePlanSaysSoWhereThereIsNone) {
  const auto trials = Planned(kLive);
  double needed = 2 * 0.5 * (1 << 30);  // two ranks
  for (const PlannedTrial& trial : trials) needed += BytesBetweenTurns(trial.config);
  memory_.bytes = needed / 0.75 + 1;
  EXPECT_EQ(SizesOfLaunches(Planned(kLive)), (Sizes{3}));
  EXPECT_TRUE(ProblemsOf(plan_).empty());
  memory_.bytes = needed / 0.75 - 1;
  EXPECT_EQ(SizesOfLaunches(Planned(kLive)), (Sizes{1, 1, 1}));
  ASSERT_EQ(ProblemsOf(plan_).size(), 1u);
  EXPECT_SAYS(ProblemsOf(plan_)[0],
              "3 trial(s) run one after another instead of side by side: "
              "part main: 3 trials side by side need about 1.1 GiB");
}

TEST_F(SharedLaunch, OnCardsNeedsOnEachWhatTheRanksOfOneHold) {
  const std::string on_cards = "mode = \"measured\"\nworkers = 4\ndevice = \"cuda\"\n";
  double needed = 4 * 0.5 * (1 << 30);
  for (const PlannedTrial& trial : Planned(on_cards)) needed += BytesBetweenTurns(trial.config);
  memory_ = {needed / 0.75 / 2 + 1, 3};  // two of four ranks share one of three cards
  EXPECT_EQ(SizesOfLaunches(Planned(on_cards)), (Sizes{3}));
  memory_.bytes -= 2;
  EXPECT_EQ(SizesOfLaunches(Planned(on_cards)), (Sizes{1, 1, 1}));
}

// 2 ranks and floats of 4 bytes. dense keeps 6 copies and its payload. Top-k of 1 % keeps two more
// copies, and 4 * 1 % of 8 bytes for each of three payloads.
TEST_F(SharedLaunch, MemoryIsThatOfReplicasResidualsAndPayloads) {
  auto trials = Planned(kLive);
  std::map<std::string, double> bytes;
  for (const PlannedTrial& trial : trials)
    bytes[trial.config.method] = BytesBetweenTurns(trial.config);
  const double elements = bytes["dense"] / (2 * 4 * 7);
  EXPECT_EQ(elements, std::round(elements));
  EXPECT_NEAR(bytes["wfbp"], elements * 2 * (4 * 8 + 3 * 0.04 * 8), 1e-6 * bytes["wfbp"]);
}

// The start of 6 s is paid once: each of three trials has 6 / 3 of it.
TEST_F(SharedLaunch, IsEstimatedWithOneStart) {
  auto trials = Planned(kLive);
  TrialRow row;
  row.config = ToJson(trials[0].config);
  row.config_hash = "another";
  row.kind = "throughput";
  row.mode = "measured";
  row.status = "ok";
  row.seconds = 10;
  row.launch = {.id = "t.1", .trials = 1, .start_seconds = 6.0};
  rows_ = {row};
  for (const PlannedTrial& trial : Planned(kLive)) EXPECT_EQ(trial.estimated_seconds, 4 + 6.0 / 3);
  row.seconds = 5;  // 4, and a third of 3
  row.launch = {.id = "t.1", .trials = 3, .start_seconds = 3.0};
  rows_ = {row};
  EXPECT_EQ(Planned(kLive)[0].estimated_seconds, 4 + 1.0);
  EXPECT_EQ(Planned(std::string(kLive) + "[repeat]\ninterleave = false\n")[0].estimated_seconds,
            4 + 3.0);
}

class Hostfile : public ::testing::Test {
 protected:
  std::vector<Host> Read(const std::string& text) {
    std::ofstream(file_) << text;
    return ReadHostfile(file_);
  }
  const TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "hosts";
};

TEST_F(Hostfile, NamesHostsWithRoom) {
  const auto hosts = Read("# mine\n\nn1 slots=8 max_slots=9\nn2 slots=4 # half\n");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].name, "n1");
  EXPECT_EQ(hosts[1].slots, 4);
  for (const auto& [ranks, each] : {std::pair(1, 1), {2, 1}, {3, 2}, {7, 4}, {8, 4}})
    EXPECT_EQ(RanksPerHost(hosts, ranks, file_), each);
  EXPECT_SAYS(ErrorOf([&] { RanksPerHost(hosts, 10, file_); }),
              "hosts: n2 has slots=4, and 10 ranks on 2 hosts are 5 each");
}

TEST_F(Hostfile, MistakesAreNamedWithTheirLine) {
  for (const auto& [text, said] :
       {std::pair("n1 slots=8\nn2\n", "hosts:2: n2 has no slots=N"),
        {"n1 slots=many\n", "hosts:1: slots=many: expected slots=N"},
        {"n1 slots=0\n", "hosts:1: slots=0: expected slots=N"},
        {"n1 slots=1\nn1 slots=1\n", "hosts:2: n1 is there twice"},
        {"-oProxyCommand=x slots=1\n", "hosts:1: \"-oProxyCommand=x\" is no"},
        {"$(x) slots=1\n", "hosts:1: \"$(x)\" is not the name of a host"},
        {"a;b slots=1\n", "hosts:1: \"a;b\" is not the name of a host"},
        {"n1 slots=1\nn\xff slots=1\n",
         "hosts:2: byte 2 of the line is 0xFF, not valid UTF-8: "
         "expected UTF-8"},
        {"n1\nn1 slots=2\n", "hosts:2: n1 is there twice"},
        {"n1 slots=2 slots=3\n", "hosts:1: slots=3 is the second of its line"},
        {"n1 slots=4 max_slots=2\n", "hosts:1: max_slots=2 and slots=4"},
        {"n2\nn1\nn1\n", "hosts:1: n2 has no slots=N"},
        {"n[1-\n", "hosts:1: n[1-: expected hosts as node[01-04,07]"},
        {"n[4-1] slots=1\n", "n[4-1]: expected hosts as"},
        {"n[1-999999999] slots=1\n", "expected hosts as"},
        {"localhost slots=2\n127.0.0.1 slots=2\n",
         "hosts:2: 127.0.0.1 is the host localhost of a line before"},
        {"Node1 slots=1\nnode1 slots=1\n", "hosts:2: node1 is the host"},
        {"# none\n", "names no host"}}) {
    const std::string message = ErrorOf([&] { Read(text); });
    EXPECT_SAYS(message, said);
  }
}

TEST_F(Hostfile, IsReadAsPeopleHaveIt) {
  const auto shown = [&](const std::string& text) {
    std::string all;
    for (const Host& host : Read(text)) all += host.name + "=" + std::to_string(host.slots) + " ";
    return all;
  };
  EXPECT_EQ(shown("node[01-04,07] slots=8\n"), "node01=8 node02=8 node03=8 node04=8 node07=8 ");
  EXPECT_EQ(shown("a[1-2].x,b slots=2\n"), "a1.x=2 a2.x=2 b=2 ");
  std::string all = "h0";
  for (int i = 1; i < 50'000; ++i) all += ",h" + std::to_string(i);
  EXPECT_EQ(Read(all + " slots=1\n").size(), 50'000u);  // on one line
  EXPECT_EQ(shown("node1 slots = 8\nnode2   slots= 8\n"), "node1=8 node2=8 ");
  EXPECT_EQ(shown("node1 slots=8\r\nnode2 slots=8\r\n"), "node1=8 node2=8 ");
  EXPECT_EQ(shown("\xef\xbb\xbfnode1\tslots=8 max_slots = 9\n"), "node1=8 ");
  EXPECT_EQ(shown("n1 cpu=4\n"), "n1=4 ");
  EXPECT_EQ(shown("n1\nn2\nn1\nn2\nn2\n"), "n1=2 n2=3 ");  // a line a slot, as PBS writes them
  EXPECT_EQ(shown("// ours\nn1 slots=4 // half\n"), "n1=4 ");
  std::ofstream(file_) << "n[1-2] slots = 8\r\n";
  EXPECT_EQ(LinesOfHosts(file_, [](const std::string& name) { return name != "n1"; }),
            "n2 slots=8\n");
}

TEST_F(Hostfile, MpirunGetsOneOfItsOwnFormWhereItWouldReadAnother) {
  const fs::path folder = folder_.path() / "written";
  const auto written = [&](const std::string& text) {
    std::ofstream(file_) << text;
    const fs::path file = FileForMpirun(file_, folder);
    return file.empty() ? "as it is" : ReadFile(file);
  };
  EXPECT_EQ(written("# ours\n\nn1 slots=2\n  n2\tslots=4  max_slots=8 # half\n"), "as it is");
  EXPECT_FALSE(fs::exists(folder));
  for (const char* text : {"n[1-2] slots=8\n", "n1,n2 slots=8\n", "n1 slots = 8\nn2 slots=8\n",
                           "n1 slots=8\r\nn2 slots=8\r\n", "\xef\xbb\xbfn1 slots=8\nn2 slots=8\n"})
    EXPECT_EQ(written(text), "n1 slots=8\nn2 slots=8\n") << text;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "equal hosts are one file";
  EXPECT_SAYS(ErrorOf([&] { written("n1,n2\n"); }), "hosts:1: n1 has no slots=N");
}

TEST_F(Hostfile, OfASchedulerHasALineASlot) {
  std::ofstream(file_) << "n1\nn1\nn2.cluster\nn1\nn3 slots=2\n";
  const auto hosts = ReadHostfile(file_, HostfileForm::kAny);
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].name, "n1");
  EXPECT_EQ(hosts[0].slots, 3);
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(hosts[2].slots, 2);
  EXPECT_EQ(LinesOfHosts(file_, [](const std::string& name) { return name != "n1"; }),
            "n2.cluster\nn3 slots=2\n");
}

class EndOfALaunch : public ::testing::Test {
 protected:
  EndOfALaunch() {
    for (const char* name : {"a", "b", "c"}) {
      directories_.push_back(folder_.path() / name);
      fs::create_directory(directories_.back());
      Leave(name, "config.json");
    }
    broken_.exit_code = 1;
  }

  void Leave(const std::string& trial, const std::string& file, const std::string& text = "") {
    std::ofstream(folder_.path() / trial / file) << text;
  }
  void Fail(const std::string& trial, const std::string& kind, int rank) {
    Leave(trial, fmt::format("failure-rank{}.json", rank),
          nlohmann::json{{"kind", kind}, {"message", ""}, {"rank", rank}}.dump());
  }
  std::vector<TrialEnd> Ends() const { return EndOf(directories_, broken_).trials; }

  using enum TrialEnd;
  TemporaryFolder folder_;
  std::vector<fs::path> directories_;
  LaunchResult broken_;
};

TEST_F(EndOfALaunch, ThatEndsWellIsTheEndOfAll) {
  EXPECT_EQ(EndOf(directories_, {}).trials, (std::vector{kEnded, kEnded, kEnded}));
}

TEST_F(EndOfALaunch, AnErrorIsItsTrialsAlone) {
  Leave("a", "outcome.json", "{}");
  Fail("b", "config", 1);
  Fail("c", "comm", 0);  // rank 0 was ahead, and saw rank 1 leave
  EXPECT_EQ(Ends(), (std::vector{kEnded, kFailed, kAgain}));
  EXPECT_FALSE(EndOf(directories_, broken_).alone);
}

TEST_F(EndOfALaunch, WhereAProcessDiesTheTrialWhoseTurnItWasHasFailed) {
  Leave("c", kTurnFile);
  Fail("c", "comm", 0);
  Fail("a", "timeout", 0);
  EXPECT_EQ(Ends(), (std::vector{kAgain, kAgain, kFailed}));
  broken_.end = LaunchResult::End::kTimeout;
  EXPECT_EQ(Ends(), (std::vector{kAgain, kAgain, kFailed}));
}

TEST_F(EndOfALaunch, ThatHappensToAllAlikeIsEveryTrialsFailure) {
  for (const char* trial : {"a", "b", "c"}) Fail(trial, "unsupported", 0);
  EXPECT_EQ(Ends(), (std::vector{kFailed, kFailed, kFailed}));
}

TEST_F(EndOfALaunch, ThatNobodyKnowsTheReasonOfIsTriedOneByOne) {
  Leave("a", "outcome.json", "{}");
  Leave("a", kTurnFile);
  const LaunchEnd end = EndOf(directories_, broken_);
  EXPECT_EQ(end.trials, (std::vector{kEnded, kAgain, kAgain}));
  EXPECT_TRUE(end.alone);
}

TEST_F(EndOfALaunch, ForWantOfMemoryBlamesNobody) {
  Leave("a", "outcome.json", "{}");
  Fail("b", "out_of_memory", 0);
  const LaunchEnd end = EndOf(directories_, broken_);
  EXPECT_EQ(end.trials, (std::vector{kEnded, kAgain, kAgain}));
  EXPECT_TRUE(end.alone);
}

TEST_F(EndOfALaunch, OfOneTrialIsThatTrials) {
  directories_.resize(1);
  EXPECT_EQ(Ends(), std::vector{kFailed});
}

TEST_F(EndOfALaunch, WhatRunsAgainFindsWhatItWasBegunWithAlone) {
  Fail("a", "comm", 0);
  Leave("a", "log.txt");
  Leave("a", "private.json");
  EmptyForAnotherLaunch(directories_[0]);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(directories_[0]))
    left.push_back(entry.path().filename());
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<std::string>{"config.json", "private.json"}));
}

// 20 s: turns of 6 and 8 s, and a start of 6 s for both. If a trial failed, it gets the remaining
// time.
TEST_F(EndOfALaunch, SecondsOfTrialsAddUpToTheLaunch) {
  LaunchTime time = TimeOf(std::vector<double>{6, 8}, 20, true);
  EXPECT_EQ(time.start_seconds, 6.0);
  EXPECT_EQ(time.trial_seconds, (std::vector<double>{9, 11}));
  time = TimeOf(std::vector<double>{6, 0}, 20, false);
  EXPECT_FALSE(time.start_seconds);
  EXPECT_EQ(time.trial_seconds, (std::vector<double>{6, 14}));
}

}  // namespace
}  // namespace sparfuse::harness
