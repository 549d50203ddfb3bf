// Writes files that are either complete or absent, even if the process or the disk fails.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// "cannot WHAT PATH: No space left on device (errno 28); free some space ..."
[[noreturn]] void FailAt(const char* what, const std::filesystem::path& path, int error);

class Descriptor {
 public:
  // `flags` as for open(2); `what` is the verb of the error.
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

// Writes to PATH with `suffix` until Commit. A failure throws Error{kData} naming the file and the
// system's reason.
class DurableWriter {
 public:
  explicit DurableWriter(const std::filesystem::path& path, const std::string& suffix = ".tmp");
  // Without Commit it leaves nothing behind, and an earlier file at `path` is still there.
  ~DurableWriter();
  DurableWriter(const DurableWriter&) = delete;
  DurableWriter& operator=(const DurableWriter&) = delete;

  void Write(std::string_view bytes) { file_.Write(bytes); }
  // fsyncs, renames, fsyncs the directory.
  void Commit();

 private:
  std::filesystem::path path_, temporary_;
  Descriptor file_;
  bool renamed_ = false;
};

// Writes to a file next to `path`, calls fsync, renames it, and calls fsync on the directory. On
// failure `path` is unchanged, and Error{kData} names the file and the system's reason.
void WriteFileDurably(const std::filesystem::path& path, std::string_view text);

// fsyncs every regular file directly in `directory`, then the directory.
void SyncDirectory(const std::filesystem::path& directory);

// mkdir -p; Error{kData} names the directory.
void MakeDirectories(const std::filesystem::path& directory);

// Whether anything has this name, also a link that leads nowhere or to itself; reading it then
// gives the error. Never throws.
bool SomethingIsAt(const std::filesystem::path& path);

// Read regular files only. Throw Error{kData} naming the file (and the byte if JSON breaks).
std::string ReadFile(const std::filesystem::path& path);
std::string ReadEndOfFile(const std::filesystem::path& path, std::size_t most_bytes);
// `without`: a member of the outermost object that is left out.
nlohmann::json ReadJsonFile(const std::filesystem::path& path, std::string_view without = {});
// Parses a text from elsewhere; errors call it `name`.
nlohmann::json ParseJson(std::string_view text, const std::string& name,
                         std::string_view without = {});

// "2026-01-31T12:34:56.789Z"
std::string UtcNow();

}  // namespace sparfuse::harness
