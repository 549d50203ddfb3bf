// Reads and writes archives whose bytes depend only on the names and contents of their members:
// POSIX tar without times, owners and compression. `tar tf FILE` lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

// Source of the form: POSIX.1-2017, pax, "ustar Interchange Format". A name of more than 100 bytes
// has a pax extended header, so that every tar reads it.
class ArchiveWriter {
 public:
  // Nothing is at `path` before Commit. Until then each process writes to a file of its own next to
  // it. Throws Error{kData} naming the file and the system's reason.
  explicit ArchiveWriter(const std::filesystem::path& path);
  void Add(std::string_view name, std::string_view content);
  void Commit();

 private:
  DurableWriter file_;
};

struct ArchiveMember {
  std::string name;
  std::uint64_t offset = 0, size = 0;  // of the content, in bytes
};

// Accepts only archives that have the exact form of ArchiveWriter's, byte for byte.
class ArchiveReader {
 public:
  // Opens a file with any content. Throws Error{kData} if it cannot be read.
  explicit ArchiveReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  // The first member alone. A caller must know what the file is before it checks the rest. Throws
  // Error{kData} if the file does not begin with a member named `name`.
  std::string First(std::string_view name) const;
  // Throws Error{kData} naming the byte at which the file differs from the form of ArchiveWriter,
  // also if the file was cut off.
  std::vector<ArchiveMember> Members() const;
  std::string Content(const ArchiveMember& member) const;

 private:
  std::string Read(std::uint64_t offset, std::uint64_t size) const;
  [[noreturn]] void Broken(std::uint64_t offset, std::string_view why) const;

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace sparfuse::harness
