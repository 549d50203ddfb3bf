#include "harness/run/live/ship/shell.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::seconds(3);  // between SIGTERM and SIGKILL

// Starts it, output into `pipe`; several threads may do so at once.
pid_t Start(const std::string& command, int pipe) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, pipe, STDOUT_FILENO);
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);  // this program ignores it
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const std::array<const char*, 4> argv = {"sh", "-c", command.c_str(), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, "/bin/sh", &files, &attributes,
                                const_cast<char**>(argv.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    SPARFUSE_THROW(kInternal, fmt::format("cannot start a shell: {}", std::strerror(error)));
  return process;
}

}  // namespace

ShellResult RunShell(const std::string& command, double most_seconds,
                     const std::atomic<bool>& interrupted) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) SPARFUSE_THROW(kInternal, "cannot make a pipe");
  pid_t process = -1;
  try {
    process = Start(command, pipe[1]);
  } catch (...) {
    ::close(pipe[0]);
    ::close(pipe[1]);
    throw;
  }
  ::close(pipe[1]);
  ShellResult result;
  const auto begun = Clock::now();
  std::optional<Clock::time_point> kill_at;
  bool killed = false;
  std::array<char, 65536> bytes;
  while (!killed) {
    pollfd event{pipe[0], POLLIN, 0};
    if (::poll(&event, 1, 100) > 0) {
      const ssize_t size = ::read(pipe[0], bytes.data(), bytes.size());
      if (size == 0) break;
      if (size > 0) result.output.append(bytes.data(), static_cast<std::size_t>(size));
      if (size < 0 && errno != EINTR) break;
    }
    if (!kill_at) {
      if (interrupted) result.ended = "interrupted";
      if (std::chrono::duration<double>(Clock::now() - begun).count() > most_seconds)
        result.ended = fmt::format("it took longer than {} s", most_seconds);
      if (result.ended.empty()) continue;
      ::kill(-process, SIGTERM);
      kill_at = Clock::now() + kGrace;
    } else if (Clock::now() > *kill_at) {
      ::kill(-process, SIGKILL);
      killed = true;
    }
  }
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  result.ok = result.ended.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  while (result.output.ends_with('\n')) result.output.pop_back();
  return result;
}

}  // namespace sparfuse::harness
