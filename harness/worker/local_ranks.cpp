#include "harness/worker/local_ranks.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "core/transport/world/world_check.hpp"
#include "harness/run/live/launch/launch_command.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void BeRank(int rank, const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv(kRankVariable, std::to_string(rank).c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("sparfuse-worker")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  std::fprintf(stderr, "rank %d cannot be started: %s\n", rank, std::strerror(errno));
  std::_Exit(1);
}

}  // namespace

int StartRanks(int ranks, const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::map<pid_t, int> running;
  bool passed = true;
  for (int rank = 0; rank < ranks && passed; ++rank) {
    const pid_t child = fork();
    if (child == 0) BeRank(rank, arguments);
    if (child < 0)
      std::fprintf(stderr, "rank %d cannot be started: %s\n", rank, std::strerror(errno));
    passed = child > 0;
    if (passed) running[child] = rank;
  }
  std::optional<Clock::time_point> end;
  if (!passed) end = Clock::now();
  while (!running.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, end ? WNOHANG : 0);
    if (ended > 0 && running.contains(ended)) {
      if (WIFSIGNALED(status)) {  // in mpirun's form, which the controller reads
        std::fprintf(stderr, "process rank %d with PID %d exited on signal %d (%s)\n",
                     running[ended], ended, WTERMSIG(status), strsignal(WTERMSIG(status)));
      }
      running.erase(ended);
      if (status != 0) {
        passed = false;
        if (!end) end = Clock::now() + kGrace;
      }
    } else if (end && Clock::now() > *end) {
      for (const auto& [process, rank] : running) kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else if (end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return passed ? 0 : 1;
}

void StartGuardian() {
  const char* text = std::getenv(kLifetimeVariable);
  const long seconds = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (seconds <= 0) return;
  const pid_t rank = ::getpid();
  if (::fork() != 0) return;  // without a guardian, only the launcher ends the rank
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A launcher waits until no process has the rank's output open.
  ::close_range(0, ~0U, 0);
  for (unsigned left = static_cast<unsigned>(seconds); left > 0 && ::getppid() == rank;)
    left = ::sleep(left);
  if (::getppid() == rank) ::kill(rank, SIGKILL);
  ::_exit(0);
}

}  // namespace sparfuse::harness
