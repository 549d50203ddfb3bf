// Writes files that are either complete or absent, whatever happens to the process or the disk.
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

// Writes beside `path`, in PATH and `suffix`, until Commit. What fails throws Error{kData}, which
// names the file and the reason from the system.
class DurableWriter {
 public:
  explicit DurableWriter(const std::filesystem::path& path, const std::string& suffix = ".tmp");
  // Without Commit nothing is left, and what was at `path` before is still there.
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

// Writes beside `path`, fsyncs, renames, fsyncs the directory. On failure nothing is left at `path`
// (or what was there before) and Error{kData} names the file and the reason from the system.
void WriteFileDurably(const std::filesystem::path& path, std::string_view text);

// fsyncs every regular file directly in `directory`, then the directory.
void SyncDirectory(const std::filesystem::path& directory);

// mkdir -p; Error{kData} names the directory.
void MakeDirectories(const std::filesystem::path& directory);

// Whether there is anything of this name, a link that leads nowhere or to itself included: reading
// it then says what is wrong. Never throws.
bool SomethingIsAt(const std::filesystem::path& path);

// Of regular files only. Throw Error{kData} naming the file (and the byte where JSON breaks).
std::string ReadFile(const std::filesystem::path& path);
std::string ReadEndOfFile(const std::filesystem::path& path, std::size_t most_bytes);
// `without`: a member of the outermost object that is left out.
nlohmann::json ReadJsonFile(const std::filesystem::path& path, std::string_view without = {});
// Of a text from elsewhere, which errors call `name`.
nlohmann::json ParseJson(std::string_view text, const std::string& name,
                         std::string_view without = {});

// "2026-01-31T12:34:56.789Z"
std::string UtcNow();

}  // namespace sparfuse::harness
