// Tests a trial's log: its limit, and the report at its end about a rank that died.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/files/durable_file.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/outcome.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

const std::string kRule(74, '-');

TEST(TrialLog, ReadsEachFormOfTheLaunchersReport) {
  const auto exited = ParseLauncherReport(
      "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
      "the job to be terminated. The first process to do so was:\n\n  Process name: [[31559,1],2]\n"
      "  Exit code:    3\n");
  EXPECT_EQ(exited.rank, 2);
  EXPECT_EQ(exited.exit_code, 3);
  for (const char* space : {" ", "\n"}) {
    const auto killed =
        ParseLauncherReport(std::string("mpirun noticed that process rank 11 with PID 99 on node "
                                        "a exited on") +
                            space + "signal 11 (Segmentation fault).");
    EXPECT_EQ(killed.rank, 11);
    EXPECT_EQ(killed.signal, 11);
  }
  // srun names the failed task first, and then ends the others.
  const auto task = ParseLauncherReport(
      "srun: error: n2: task 3: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=2.0\n"
      "srun: error: n2: task 2: Terminated\nsrun: error: n1: tasks 0-1: Terminated\n");
  EXPECT_EQ(task.rank, 3);
  EXPECT_EQ(task.signal, 9);
  const auto tasks = ParseLauncherReport("srun: error: n2: tasks 2-3: Exited with exit code 7\n");
  EXPECT_EQ(tasks.rank, 2);
  EXPECT_EQ(tasks.exit_code, 7);
  const auto aborted = ParseLauncherReport("MPI_ABORT was invoked on rank 3 in communicator X");
  EXPECT_EQ(aborted.rank, 3);
  EXPECT_FALSE(aborted.signal || aborted.exit_code);
  for (const char* other : {"", "nothing of the kind", "process rank x exited on signal 9",
                            "process rank 1 exited on signal ", "process rank 99999999999999 ",
                            "srun: error: n2: task x: Killed", "srun: error: n2: task 3"}) {
    EXPECT_FALSE(ParseLauncherReport(other).rank) << other;
  }
}

// A rank may print anything, such as a line of megabytes in the launcher's words.
TEST(TrialLog, ALineOfMegabytesIsNoReport) {
  const std::string line = "process rank 0 " + std::string(3'000'000, 'x');
  EXPECT_FALSE(ParseLauncherReport(line).rank);
  const auto report = ParseLauncherReport(
      line + "\nmpirun noticed that process rank 1 with PID 9 on node a exited on signal 9.\n");
  EXPECT_EQ(report.rank, 1);
  EXPECT_EQ(report.signal, 9);
}

TEST(TrialLog, TheTailHasWholeLinesAndAnEnd) {
  EXPECT_EQ(Tail("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(Tail("", 2), "");
  EXPECT_LE(Tail(std::string(100'000, 'x'), 2).size(), 8192u);
}

TEST(TrialLog, LastWordsAreTheProcessesElseTheLaunchers) {
  EXPECT_EQ(LastWords("slurmstepd-n2: error: execve(): /x: No such file or directory\n"
                      "srun: error: n2: tasks 2-3: Exited with exit code 2\n"),
            "slurmstepd-n2: error: execve(): /x: No such file or directory");
  EXPECT_EQ(LastWords("one\n\x1b[31mtwo\n\n" + kRule + "\nmpirun detected\n" + kRule + "\n"),
            " [31mtwo");
  EXPECT_EQ(LastWords(kRule + "\nThere are not enough slots\nat all\n" + kRule + "\n"),
            "There are not enough slots at all");
  EXPECT_EQ(
      LastWords(kRule + "\nA parse error in the hostfile:\n    /tmp/hosts\n\nIt is on line 2.\n" +
                kRule + "\n[n1:7] another line\n"),
      "A parse error in the hostfile: /tmp/hosts It is on line 2.");
  EXPECT_EQ(LastWords("one\ntwo" + kRule + "\nPrimary job terminated normally\n"), "two");
  EXPECT_EQ(LastWords(""), "");
  EXPECT_LE(LastWords(std::string(100'000, 'x')).size(), 300u);
  EXPECT_LE(LastWords(kRule + "\n" + std::string(100'000, 'x')).size(), 1200u);
}

LaunchResult LaunchShell(const TemporaryFolder& folder, const std::string& command) {
  LaunchRequest request;
  request.argv = {"/bin/sh", "-c", command};
  request.log = folder.path() / "log.txt";
  request.timeout_seconds = 60;
  const std::atomic<bool> interrupted{false};
  return Launch(request, interrupted, nullptr);
}

TEST(TrialLog, HasALimitAndKeepsTheEnd) {
  const TemporaryFolder folder;
  const auto end = LaunchShell(
      folder, "echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo; echo last words; exit 3");
  EXPECT_EQ(end.exit_code, 3);
  const std::string log = ReadFile(folder.path() / "log.txt");
  EXPECT_LE(log.size(), kMostLogBytes + kLogEndBytes + 1000);
  EXPECT_TRUE(log.starts_with("first\nx"));
  EXPECT_TRUE(log.ends_with("x\nlast words\n"));
  EXPECT_SAYS(log, "[sparfuse: this log has reached its limit of 16 MiB");
  const std::size_t left_out = 6 + 40000000 + 12 - kMostLogBytes - kLogEndBytes;
  EXPECT_SAYS(log, "[sparfuse: " + std::to_string(left_out) + " bytes were left out]") << left_out;
}

TEST(TrialLog, IsWholeBelowItsLimit) {
  const TemporaryFolder folder;
  LaunchShell(folder, "for i in 1 2 3; do echo out $i; echo err $i >&2; done");
  EXPECT_EQ(ReadFile(folder.path() / "log.txt"), "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
}

TEST(Outcome, ARankThatLeftNoMessageIsQuoted) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "log.txt")
      << "worker: error while loading shared libraries: libtorch.so: cannot open\n"
      << kRule << "\nmpirun detected that ...\n\n  Process name: [[1,1],0]\n  Exit code:    127\n"
      << kRule << "\n";
  LaunchResult end;
  end.exit_code = 127;
  const Failure failure = *CollectOutcome(folder.path(), end, 60).failure;
  EXPECT_EQ(failure.message,
            "rank 0 exited with status 127 and left no message; its log ends: worker: error while "
            "loading shared libraries: libtorch.so: cannot open");
}

}  // namespace
}  // namespace sparfuse::harness
