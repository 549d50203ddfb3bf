// Tests the launcher beyond starting and ending processes: signals to the controller, and a
// supervisor that does not answer.
#include "harness/run/live/launch/launcher.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/files/durable_file.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

bool Runs(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  return !text.empty() && text.substr(text.rfind(')') + 1, 2) != " Z";
}

TEST(Launcher, AStoppedSupervisorIsEndedWithAllThatItStarted) {
  const TemporaryFolder folder;
  LaunchRequest request;
  request.argv = {"sh", "-c", "sleep 100 & echo $! > \"$0\"; trap '' TERM; sleep 100",
                  (folder.path() / "process").string()};
  request.log = folder.path() / "log.txt";
  request.timeout_seconds = 3;
  request.supervisor_seconds = 0.5;
  const std::atomic<bool> interrupted{false};
  const LaunchResult result = Launch(request, interrupted, [&](double) {
    std::error_code none_yet;
    if (std::filesystem::file_size(folder.path() / "process", none_yet) == 0 || none_yet) return;
    pid_t supervisor = 0;
    const std::string self = std::to_string(getpid());
    std::ifstream("/proc/" + self + "/task/" + self + "/children") >> supervisor;
    if (supervisor > 0) kill(supervisor, SIGSTOP);
  });
  EXPECT_EQ(result.end, LaunchResult::End::kTimeout);
  EXPECT_LT(result.seconds, 30);
  const pid_t process = std::stoi(ReadFile(folder.path() / "process"));
  // After SIGKILL the kernel may take some time.
  for (int i = 0; i < 1000 && Runs(process); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(Runs(process));
}

// A run within a run must not undo the outer run's interruption handling.
TEST(Interruption, LastsAsLongAsTheOutermostOne) {
  {
    const Interruption outer;
    { const Interruption inner; }
    EXPECT_FALSE(Interruption::flag());
    std::raise(SIGTERM);  // ends this program if nothing catches it
    EXPECT_TRUE(Interruption::flag());
  }
  const auto before = std::signal(SIGTERM, SIG_DFL);
  EXPECT_EQ(before, SIG_DFL);
}

}  // namespace
}  // namespace sparfuse::harness
