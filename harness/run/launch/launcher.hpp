// Launches a trial as a process group of its own: mpirun and its ranks, watched by a supervisor
// that ends all of them when the trial is over, when its time is up, or when the controller is
// gone.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sparfuse::harness {

struct LaunchRequest {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of the inherited one
  std::filesystem::path log;      // stdout and stderr, up to kMostLogBytes
  std::filesystem::path session;  // record of a SessionFolder that mpirun is to use; "": no mpirun
  double timeout_seconds = 600;
};

struct LaunchResult {
  enum class End { kExited, kSignalled, kTimeout, kInterrupted } end = End::kExited;
  int exit_code = 0;  // kExited
  int signal = 0;     // kSignalled: of the launcher itself
  double seconds = 0;
};

// Blocks until every process of the trial is gone. `interrupted` (set by a signal handler) ends it
// early; `tick` is called a few times a second. Throws Error{kInternal} if nothing could be
// started, Error{kData} if the log cannot be written.
//
// Open MPI puts every rank in a process group of its own, so a signal to a group misses them: the
// supervisor is a subreaper and ends all of its descendants. It gets SIGTERM from the kernel when
// the controller dies (kill -9 included).
LaunchResult Launch(const LaunchRequest& request, const std::atomic<bool>& interrupted,
                    const std::function<void(double elapsed_seconds)>& tick);

}  // namespace sparfuse::harness
