#include "harness/run/live/launch/launcher.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <random>

#include "core/base/clock.hpp"
#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace {

std::atomic<bool> interrupted_by_signal{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");
std::atomic<int> alive{0};

void OnInterrupt(int) {
  interrupted_by_signal.store(true);
  std::signal(SIGINT, SIG_DFL);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

Interruption::Interruption() {
  if (alive++ > 0) return;
  for (const int signal : kSignals) {
    if (std::signal(signal, OnInterrupt) == SIG_IGN && signal == SIGHUP)
      std::signal(signal, SIG_IGN);
  }
}

Interruption::~Interruption() {
  if (--alive > 0) return;
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

const std::atomic<bool>& Interruption::flag() noexcept { return interrupted_by_signal; }

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::seconds(3);  // between SIGTERM and SIGKILL

// The supervisor's report to the controller, sent once.
struct Report {
  int started = 0;  // errno of exec, or 0
  int status = 0;   // of the launcher, in waitpid's form
};

// Returns the parent of every process, from /proc.
std::map<pid_t, pid_t> Parents() {
  std::map<pid_t, pid_t> parents;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return parents;
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(stat, text);
    const auto end = text.rfind(')');  // the process name may contain anything
    int parent = 0;
    char state = 0;
    if (end != std::string::npos &&
        std::sscanf(text.c_str() + end + 1, " %c %d", &state, &parent) == 2) {
      parents[pid] = parent;
    }
  }
  closedir(proc);
  return parents;
}

std::vector<pid_t> Descendants(pid_t of) {
  const auto parents = Parents();
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : parents) {
    pid_t ancestor = parent;
    while (ancestor > 1 && ancestor != of) {
      const auto next = parents.find(ancestor);
      ancestor = next == parents.end() ? 0 : next->second;
    }
    if (ancestor == of) found.push_back(pid);
  }
  return found;
}

// Kills all descendants of this process. The next round finds processes that forked meanwhile.
void KillDescendants() {
  for (int round = 0; round < 200; ++round) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const auto left = Descendants(getpid());
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    usleep(5000);
  }
}

// Kills a supervisor that does not answer, perhaps because it is stopped, and everything that it
// started. The supervisor is the parent of processes that lost their own.
void KillSupervisor(pid_t supervisor) {
  kill(supervisor, SIGSTOP);  // it starts nothing meanwhile
  constexpr int kRounds = 5;  // for processes that fork meanwhile
  for (int round = 0; round < kRounds; ++round) {
    for (const pid_t pid : Descendants(supervisor)) kill(pid, SIGKILL);
    usleep(5000);
  }
  kill(supervisor, SIGKILL);
}

// The messages of ranks, in memory that the supervisor shares with this process.
class SharedSaid {
 public:
  SharedSaid()
      : memory_(mmap(nullptr, sizeof(LaunchSaid), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) SPARFUSE_THROW(kInternal, "cannot share a page of memory");
    said_ = new (memory_) LaunchSaid;
  }
  ~SharedSaid() { munmap(memory_, sizeof(LaunchSaid)); }
  SharedSaid(const SharedSaid&) = delete;
  SharedSaid& operator=(const SharedSaid&) = delete;
  LaunchSaid& operator*() const noexcept { return *said_; }

 private:
  void* memory_;
  LaunchSaid* said_;
};

void RedirectOutput(int output) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

// Runs the command in the place of this process. Returns if there is no such program.
void Become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
}

// A command that ends ranks. A cluster's controller may not answer it, so it has kGrace.
struct Ender {
  pid_t pid = 0;  // -1: it has ended
  Clock::time_point until = {};

  void Await() const {
    while (pid > 0 && waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() < until) usleep(20000);
  }
};

Ender StartEnder(const std::vector<std::string>& command, int output, const sigset_t& mask) {
  if (command.empty()) return {-1};
  const pid_t ender = fork();
  if (ender != 0) return {ender, Clock::now() + kGrace};
  RedirectOutput(output);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  Become(command);
  _exit(127);
}

// Waits for output or a signal. Returns whether SIGTERM came.
bool WaitForEvents(int signals, int output) {
  pollfd events[] = {{signals, POLLIN, 0}, {output, POLLIN, 0}};
  poll(events, 2, 100);
  bool terminate = false;
  for (signalfd_siginfo info; read(signals, &info, sizeof(info)) == sizeof(info);) {
    terminate = terminate || info.ssi_signo == SIGTERM;
  }
  return terminate;
}

[[noreturn]] void Exec(const LaunchRequest& request, const SessionFolder* session,
                       const sigset_t& mask, int output, int error_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RedirectOutput(output);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
  if (session != nullptr) {
    for (const auto& [name, value] : session->Environment()) setenv(name.c_str(), value.c_str(), 1);
  }
  for (const auto& [name, value] : request.environment) setenv(name.c_str(), value.c_str(), 1);
  Become(request.argv);
  const int error = errno;
  [[maybe_unused]] const auto written = write(error_pipe, &error, sizeof(error));
  _exit(127);
}

// Runs in a child of the controller and never returns.
[[noreturn]] void Supervise(const LaunchRequest& request, const SessionFolder* session,
                            pid_t controller, int log, int report_pipe, LaunchSaid& said) {
  sigset_t watched, inherited;
  sigemptyset(&watched);
  for (const int signal : {SIGTERM, SIGCHLD, SIGINT, SIGHUP}) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &inherited);
  setpgid(0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != controller) _exit(1);  // the controller died before prctl
  RedirectOutput(log);

  int error_pipe[2], output[2];
  const int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0 || pipe2(error_pipe, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) _exit(1);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  const pid_t launcher = fork();
  if (launcher == 0) Exec(request, session, inherited, output[1], error_pipe[1]);
  close(error_pipe[1]);
  close(output[1]);
  LaunchLines lines(said);
  LogCopy copy(output[0], log, &lines);
  bool printing = true;
  Report report;
  if (launcher < 0) {
    report.started = errno;
  } else if (read(error_pipe[0], &report.started, sizeof(report.started)) <= 0) {
    report.started = 0;
  }
  bool ended = launcher < 0;
  Ender ender;
  std::optional<Clock::time_point> kill_at;
  while (!ended) {
    const bool terminate = WaitForEvents(signals, printing ? output[0] : -1);
    printing = printing && copy.Drain() != LogCopy::Pipe::kClosed;
    for (int status = 0; const pid_t pid = waitpid(-1, &status, WNOHANG);) {
      if (pid < 0) break;
      if (pid == launcher) {
        report.status = status;
        ended = true;
      }
      if (pid == ender.pid) ender.pid = -1;
    }
    if (terminate && !kill_at) {
      const bool orphaned = getppid() != controller;
      if (!orphaned) kill(launcher, SIGTERM);
      ender = StartEnder(request.ender, log, inherited);
      kill_at = Clock::now() + (orphaned ? std::chrono::seconds(0) : kGrace);
    }
    if (!ended && kill_at && Clock::now() >= *kill_at) {
      kill(launcher, SIGKILL);
      kill_at = Clock::now() + kGrace;
    }
  }
  const bool well = WIFEXITED(report.status) && WEXITSTATUS(report.status) == 0;
  if (ender.pid == 0 && !well) ender = StartEnder(request.ender, log, inherited);
  ender.Await();
  KillDescendants();
  while (printing && copy.Drain() == LogCopy::Pipe::kMore) {
  }
  copy.Finish();
  if (session != nullptr) session->Remove();
  [[maybe_unused]] const auto written = write(report_pipe, &report, sizeof(report));
  _exit(0);
}

}  // namespace

LaunchResult Launch(const LaunchRequest& request, const std::atomic<bool>& interrupted,
                    const std::function<void(double)>& tick) {
  const auto begin = Clock::now();
  const int log =
      open(request.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    SPARFUSE_THROW(kData, fmt::format("cannot write {}: {} (errno {})", request.log.string(),
                                      std::strerror(errno), errno));
  }
  std::optional<SessionFolder> session;
  if (!request.session.empty()) session.emplace(request.session);
  int report_pipe[2];
  if (pipe2(report_pipe, O_CLOEXEC) != 0) SPARFUSE_THROW(kInternal, "cannot make a pipe");
  const SharedSaid said;
  const pid_t controller = getpid();
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    close(report_pipe[0]);
    Supervise(request, session ? &*session : nullptr, controller, log, report_pipe[1], *said);
  }
  const int fork_error = errno;
  close(log);
  close(report_pipe[1]);
  if (supervisor < 0) {
    close(report_pipe[0]);
    SPARFUSE_THROW(kInternal,
                   fmt::format("cannot start a trial: fork: {}", std::strerror(fork_error)));
  }
  LaunchResult result;
  bool stopping = false, killed = false;
  double stopped_at = 0;
  const auto stop = [&](LaunchResult::End why) {
    if (stopping) return;
    stopping = true;
    stopped_at = SecondsSince(begin);
    result.end = why;
    kill(supervisor, SIGTERM);
  };
  pollfd pipe{report_pipe[0], POLLIN, 0};
  while (poll(&pipe, 1, 100) <= 0 || pipe.revents == 0) {
    if (interrupted.load()) stop(LaunchResult::End::kInterrupted);
    if (SecondsSince(begin) > request.timeout_seconds) stop(LaunchResult::End::kTimeout);
    if (!stopping && request.watch != nullptr)
      result.why = request.watch->WhyToEnd(SecondsSince(begin), *said);
    if (!result.why.empty()) stop(LaunchResult::End::kStopped);
    if (stopping && !killed && SecondsSince(begin) > stopped_at + request.supervisor_seconds) {
      killed = true;
      KillSupervisor(supervisor);
    }
    if (tick) tick(SecondsSince(begin));
  }
  Report report;
  const bool complete = read(report_pipe[0], &report, sizeof(report)) == sizeof(report);
  close(report_pipe[0]);
  while (waitpid(supervisor, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (session) session->Remove();  // somebody may have killed the supervisor
  result.seconds = SecondsSince(begin);
  if (report.started != 0) {
    const char* remedy = report.started == ENOENT && request.argv.front() == "mpirun"
                             ? "; live trials need Open MPI's mpirun on PATH (scripts/setup)"
                             : "";
    SPARFUSE_THROW(kInternal, fmt::format("cannot start {}: {}{}", request.argv.front(),
                                          std::strerror(report.started), remedy));
  }
  if (stopping) return result;
  if (!complete) {  // somebody killed the supervisor
    result.end = LaunchResult::End::kSignalled;
    result.signal = SIGKILL;
  } else if (WIFSIGNALED(report.status)) {
    result.end = LaunchResult::End::kSignalled;
    result.signal = WTERMSIG(report.status);
  } else {
    result.exit_code = WEXITSTATUS(report.status);
  }
  return result;
}

std::string Nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "sparfuse-session-";

// The folder for shared memory segments, if it is writable, else the one for temporary files.
fs::path Parent() {
  const fs::path memory = "/dev/shm";
  std::error_code none;
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path(none);
}

// Whether the folder can only be a session's folder of this user.
bool IsSession(const fs::path& folder) {
  const std::string name = folder.filename().string();
  struct stat status {};
  return folder.is_absolute() && folder.lexically_normal() == folder && name.starts_with(kPrefix) &&
         ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

}  // namespace

SessionFolder::SessionFolder(const fs::path& record) : record_(record) {
  std::string path = (Parent() / fmt::format("{}XXXXXX", kPrefix)).string();
  if (::mkdtemp(path.data()) == nullptr) {
    SPARFUSE_THROW(kData, fmt::format("cannot make a folder in {}: {} (errno {})",
                                      Parent().string(), std::strerror(errno), errno));
  }
  folder_ = path;
  try {
    WriteFileDurably(record_, path + "\n");
  } catch (...) {
    ::rmdir(path.c_str());
    throw;
  }
}

std::vector<std::pair<std::string, std::string>> SessionFolder::Environment() const {
  const std::string path = folder_.string();
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
                           "PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory"}) {
    // A variable that the user set stays.
    if (std::getenv(name) == nullptr) environment.emplace_back(name, path);
  }
  return environment;
}

void SessionFolder::Remove() const {
  std::error_code none;
  fs::remove_all(folder_, none);
  fs::remove(record_, none);
}

void RemoveSession(const fs::path& record) {
  std::error_code none;
  if (!fs::is_regular_file(fs::symlink_status(record, none))) return;
  std::string path;
  try {
    path = ReadFile(record);
  } catch (const Error&) {
    return;
  }
  while (path.ends_with('\n')) path.pop_back();
  if (IsSession(path)) fs::remove_all(path, none);
  fs::remove(record, none);
}

}  // namespace sparfuse::harness
