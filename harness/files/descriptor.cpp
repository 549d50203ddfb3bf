#include "harness/files/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace sparfuse::harness
