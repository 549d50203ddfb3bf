#include "harness/run/live/ship/node_channel.hpp"

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
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/launch_method.hpp"

namespace sparfuse::harness {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRemoteGrace = std::chrono::seconds(3);  // between SIGTERM and SIGKILL

// Starts the command with its output into `pipe`. Several threads may call it at once.
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
      kill_at = Clock::now() + kRemoteGrace;
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

namespace {

namespace fs = std::filesystem;
using Kind = LaunchMethod::Kind;
using Words = std::vector<std::string>;

std::string LineOf(const Words& words) {
  std::string line;
  for (const std::string& word : words) line += ShellQuoted(word) + " ";
  return line;
}

}  // namespace

std::vector<std::string> NodesOf(const LaunchMethod& method) {
  std::vector<std::string> nodes;
  if (!method.hostfile.empty()) {
    for (const Host& host : HostsOf(method)) nodes.push_back(host.name);
    return nodes;
  }
  if (method.kind != Kind::kTemplate) {
    bool ok = false;
    const std::string list =
        CommandOutput("scontrol show hostnames \"$SLURM_JOB_NODELIST\" 2>/dev/null", ok);
    std::istringstream lines(list);
    for (std::string line; ok && std::getline(lines, line);) nodes.push_back(line);
  }
  std::erase_if(nodes, [&](const std::string& node) {
    return std::ranges::find(method.left_out, node) != method.left_out.end();
  });
  if (nodes.empty()) {
    SPARFUSE_THROW(kConfig,
                   "the names of nodes come from --hostfile or from Slurm: expected --launch srun "
                   "or mpirun, with a hostfile or within an allocation");
  }
  return nodes;
}

// Needs --overlap, because an ending step may still hold the node.
Words OnNode(const LaunchMethod& method, const std::string& node, Words command) {
  Words words;
  if (method.kind == Kind::kSrun) {
    words = {"srun",       "--mpi=none",         "--overlap", "--nodes=1",
             "--ntasks=1", "--nodelist=" + node, "--chdir=/", "--quiet"};
  } else {
    words = {"mpirun"};
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (!method.interface.empty()) {
      for (const char* of : {"btl_tcp_if_include", "oob_tcp_if_include"})
        words.insert(words.end(), {"--mca", of, method.interface});
    }
    words.insert(words.end(), {"--host", node, "-np", "1", "-wdir", "/"});
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

Staging::Staging() {
  std::string path = (fs::temp_directory_path() / "sparfuse-ship-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) SPARFUSE_THROW(kData, "cannot make a folder: " + path);
  folder_ = path;
}

Staging::~Staging() {
  std::error_code none;
  fs::remove_all(folder_, none);
}

std::string NodeChannel::Run(const std::string& node, const std::string& script,
                             const std::string& input, double most_seconds) const {
  const std::string line = LineOf(OnNode(method_, node, {"sh", "-c", script}));
  const ShellResult result =
      RunShell(input.empty() ? line + "</dev/null 2>&1" : input + " | " + line + "2>&1",
               most_seconds, interrupted_);
  if (!result.ok || result.output.find(kScriptDone) == std::string::npos) {
    SPARFUSE_THROW(kData, fmt::format("--ship: node {}: \"{}\"{}", node, result.output,
                                      result.ended.empty() ? "" : ": " + result.ended));
  }
  return result.output;
}

ShellResult NodeChannel::RunInto(const std::string& node, const std::string& script,
                                 const fs::path& output, const fs::path& said) const {
  const std::string line = LineOf(OnNode(method_, node, {"sh", "-c", script}));
  return RunShell(fmt::format("{}</dev/null >{} 2>{}", line, ShellQuoted(output.string()),
                              ShellQuoted(said.string())),
                  kMostSecondsOfTrials, interrupted_);
}

}  // namespace sparfuse::harness
