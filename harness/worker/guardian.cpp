#include "harness/worker/guardian.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "harness/run/live/launch/launch_command.hpp"

namespace sparfuse::harness {

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
