#include "harness/store/store_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// Follows the pid in the lock file of a holder that needs only moments.
constexpr const char* kReader = " reader";

fs::path LockPath(const fs::path& results) { return results / "store.lock"; }

int OpenLock(const fs::path& results) {
  MakeDirectories(results);
  const int fd = ::open(LockPath(results).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) {
    SPARFUSE_THROW(kData, fmt::format("cannot open {}: {} (errno {})", LockPath(results).string(),
                                      std::strerror(errno), errno));
  }
  return fd;
}

// People and waiting processes read the text. If it cannot be written (a full disk), the lock holds
// nevertheless.
void WriteHolder(int fd, const char* what) {
  const std::string text = std::to_string(::getpid()) + what + "\n";
  if (::ftruncate(fd, 0) == 0) [[maybe_unused]]
    const auto written = ::pwrite(fd, text.data(), text.size(), 0);
}

struct Holder {
  std::string pid = "unknown";
  bool reader = false;
};

Holder ReadHolder(int fd) {
  char text[64] = {};
  const ssize_t n = ::pread(fd, text, sizeof(text) - 1, 0);
  const std::string line(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::string pid = line.substr(0, line.find_first_not_of("0123456789"));
  return {pid.empty() ? "unknown" : pid, line.find(kReader) != std::string::npos};
}

std::string CommandOf(const std::string& pid) {
  try {
    std::string command = ReadFile("/proc/" + pid + "/cmdline");
    std::ranges::replace(command, '\0', ' ');
    while (!command.empty() && command.back() == ' ') command.pop_back();
    return command;
  } catch (const Error&) {
    return "";  // the process ended meanwhile
  }
}

}  // namespace

StoreLock::StoreLock(const fs::path& results) : fd_(OpenLock(results)) {
  // A reader needs moments, unless it rebuilds a large index. The supervisor of a killed controller
  // holds the lock until it has ended the trial's processes.
  constexpr auto kForReaders = std::chrono::seconds(60), kForTheDead = std::chrono::seconds(10);
  const auto begin = std::chrono::steady_clock::now();
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const Holder holder = ReadHolder(fd_);
    const bool dead = !fs::exists("/proc/" + holder.pid);
    const auto patience = dead            ? kForTheDead
                          : holder.reader ? kForReaders
                                          : std::chrono::seconds(0);
    if (std::chrono::steady_clock::now() - begin < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    const std::string command = CommandOf(holder.pid);
    ::close(fd_);
    SPARFUSE_THROW(
        kConfig,
        fmt::format("{} is in use by process {}{}: expected no other run on this results "
                    "folder; wait for it, or give another folder with --results",
                    results.string(), holder.pid, command.empty() ? "" : " (" + command + ")"));
  }
  WriteHolder(fd_, "");
}

std::unique_ptr<StoreLock> StoreLock::TryLock(const fs::path& results) {
  const int fd = OpenLock(results);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return nullptr;
  }
  WriteHolder(fd, kReader);
  return std::unique_ptr<StoreLock>(new StoreLock(fd));
}

StoreLock::~StoreLock() { ::close(fd_); }

}  // namespace sparfuse::harness
