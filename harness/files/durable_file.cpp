#include "harness/files/durable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "core/base/error.hpp"

namespace sparfuse::harness {

void FailAt(const char* what, const std::filesystem::path& path, int error) {
  SPARFUSE_THROW(
      kData,
      fmt::format("cannot {} {}: {} (errno {}){}", what, path.string(), std::strerror(error), error,
                  error == ENOSPC ? "; free some space there and run the command again" : ""));
}

Descriptor::Descriptor(const std::filesystem::path& path, int flags, const char* what)
    : path_(path), fd_(::open(path.c_str(), flags, 0644)) {
  if (fd_ < 0) FailAt(what, path, errno);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void Descriptor::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailAt("write", path_, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Descriptor::Sync() {
  if (::fsync(fd_) != 0) FailAt("fsync", path_, errno);
}

void Descriptor::Close() {
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) FailAt("close", path_, errno);
}

namespace fs = std::filesystem;

DurableWriter::DurableWriter(const fs::path& path, const std::string& suffix)
    : path_(path),
      temporary_(path.string() + suffix),
      file_(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC) {}

DurableWriter::~DurableWriter() {
  if (!renamed_) ::unlink(temporary_.c_str());
}

void DurableWriter::Commit() {
  file_.Sync();
  file_.Close();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) FailAt("rename to", path_, errno);
  renamed_ = true;
  const fs::path directory = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  Descriptor(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC).Sync();
}

namespace {

// The nesting depth of arrays and objects in a text, read as JSON.
std::size_t DepthOf(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

void WriteFileDurably(const fs::path& path, std::string_view text) {
  DurableWriter file(path);
  file.Write(text);
  file.Commit();
}

void SyncDirectory(const fs::path& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_regular_file()) Descriptor(entry.path(), O_RDONLY | O_CLOEXEC).Sync();
  }
  if (error) FailAt("read the directory", directory, error.value());
  Descriptor(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC).Sync();
}

void MakeDirectories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) FailAt("make the directory", directory, error.value());
}

std::string ReadFile(const fs::path& path) {
  // Opens without waiting, because a pipe without a writer would block.
  const Descriptor file(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, "read");
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) FailAt("read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    SPARFUSE_THROW(kData,
                   fmt::format("cannot read {}: it is {}, expected a regular file", path.string(),
                               S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device"));
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (true) {  // to the end, which may move meanwhile
    if (filled == text.size()) text.resize(text.size() + 4096);
    const ssize_t n = ::read(file.number(), text.data() + filled, text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailAt("read", path, errno);
    if (n == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  text.resize(filled);
  return text;
}

bool SomethingIsAt(const fs::path& path) {
  std::error_code failed;
  return fs::symlink_status(path, failed).type() != fs::file_type::not_found;
}

std::string ReadEndOfFile(const fs::path& path, std::size_t most_bytes) {
  errno = 0;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) FailAt("read", path, errno);
  const auto size = static_cast<std::streamoff>(in.tellg());
  std::string text(
      static_cast<std::size_t>(std::min(size, static_cast<std::streamoff>(most_bytes))), '\0');
  in.seekg(size - static_cast<std::streamoff>(text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) FailAt("read", path, errno);
  return text;
}

nlohmann::json ReadJsonFile(const fs::path& path, std::string_view without) {
  return ParseJson(ReadFile(path), path.string(), without);
}

nlohmann::json ParseJson(std::string_view text, const std::string& name, std::string_view without) {
  // Writing such a value again recurses on the stack, level by level.
  constexpr std::size_t kDeepest = 200;
  if (DepthOf(text) > kDeepest) {
    SPARFUSE_THROW(kData, fmt::format("{}: nested deeper than {} levels", name, kDeepest));
  }
  try {
    if (without.empty()) return nlohmann::json::parse(text);
    using Event = nlohmann::json::parse_event_t;
    return nlohmann::json::parse(text, [&](int depth, Event event, const nlohmann::json& value) {
      return event != Event::key || depth != 1 || value != without;
    });
  } catch (const nlohmann::json::parse_error& error) {
    SPARFUSE_THROW(kData, fmt::format("{}: not valid JSON ({} bytes; it breaks at byte {})", name,
                                      text.size(), error.byte));
  } catch (const nlohmann::json::exception&) {
    SPARFUSE_THROW(kData,
                   fmt::format("{}: not valid JSON: a number is larger than any double", name));
  }
}

std::string UtcNow() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     milliseconds);
}

}  // namespace sparfuse::harness
