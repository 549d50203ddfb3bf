// Holds an open file: what fails throws Error{kData} with the path and the system's reason.
#pragma once

#include <filesystem>
#include <string_view>

namespace sparfuse::harness {

// "cannot WHAT PATH: No space left on device (errno 28); free some space ..."
[[noreturn]] void FailAt(const char* what, const std::filesystem::path& path, int error);

class Descriptor {
 public:
  // `flags` as open(2) has them; `what` is the verb of the error.
  Descriptor(const std::filesystem::path& path, int flags, const char* what = "open");
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const noexcept { return fd_; }
  void Write(std::string_view text);
  void Sync();
  void Close();

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace sparfuse::harness
