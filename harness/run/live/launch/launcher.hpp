// Launches a trial as a process group of its own: mpirun and its ranks, watched by a supervisor.
// The supervisor ends all of them when the trial is over, when its time is up, or when the
// controller is gone. Also ends a run in order when the user asks for it.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {

// While any exists SIGINT, SIGTERM and SIGHUP set flag() instead of ending the program; a second ^C
// ends it at once, and the supervisor of its trial cleans up. A SIGHUP that the program was started
// to ignore (nohup) stays ignored.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static const std::atomic<bool>& flag() noexcept;
};

struct LaunchRequest {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of the inherited one
  std::filesystem::path log;      // stdout and stderr, up to kMostLogBytes
  std::filesystem::path session;  // record of the SessionFolder for mpirun; "": no mpirun
  double timeout_seconds = 600;
  // A command for ranks that the launcher cannot end, or nothing. It runs when the launch is ended
  // early and when its launcher fails, and has some seconds.
  std::vector<std::string> ender = {};
  LaunchWatch* watch = nullptr;  // asked a few times a second whether the launch has to end
  // From when the launch was told to end until it has: else its supervisor is killed with all that
  // it started.
  double supervisor_seconds = 15;
};

struct LaunchResult {
  enum class End {
    kExited,
    kSignalled,
    kTimeout,
    kInterrupted,
    kStopped,  // as the watch said
  } end = End::kExited;
  int exit_code = 0;  // kExited
  int signal = 0;     // kSignalled: of the launcher itself
  double seconds = 0;
  std::string why = {};  // kStopped
};

// Blocks until every process of the trial is gone. `interrupted` (set by a signal handler) ends it
// early; `tick` is called a few times a second. Throws Error{kInternal} if nothing could be
// started, Error{kData} if the log cannot be written.
//
// Open MPI puts every rank in a process group of its own, and a signal to a group misses them. So
// the supervisor is a subreaper and ends all of its descendants. It gets SIGTERM from the kernel
// when the controller dies (kill -9 included).
LaunchResult Launch(const LaunchRequest& request, const std::atomic<bool>& interrupted,
                    const std::function<void(double elapsed_seconds)>& tick);

// Returns a text that no other launch has, not even one that was killed and left ranks behind.
std::string Nonce();

// The folder is made for one launch. The last holder removes it with its content; after a kill of
// the controller this is the supervisor. Its path is first written to `record`, a file in the
// folder of the trial's log. From there a later run finds it if nobody was left to remove it.
class SessionFolder {
 public:
  // Throws Error{kData} if it or `record` cannot be written.
  explicit SessionFolder(const std::filesystem::path& record);

  // The variables that the launcher needs to use it.
  std::vector<std::pair<std::string, std::string>> Environment() const;
  void Remove() const;

 private:
  std::filesystem::path record_, folder_;
};

// The name of the record in a trial's directory.
inline constexpr const char* kSessionRecord = "session.txt";

// Removes the folder in `record`, if it is a session's folder of this user; then `record`.
void RemoveSession(const std::filesystem::path& record);

}  // namespace sparfuse::harness
