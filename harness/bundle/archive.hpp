// Reads and writes archives whose bytes follow from their members' names and contents alone: POSIX
// tar without times, owners and compression. `tar tf FILE` lists them.
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
  // Nothing is at `path` before Commit; each process writes beside it under a name of its own.
  // Throws Error{kData} naming the file and the system's reason.
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

// Takes nothing but what ArchiveWriter writes, byte for byte, contents apart.
class ArchiveReader {
 public:
  // Of a file that may be anything. Throws Error{kData} where it cannot be read.
  explicit ArchiveReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  // The first member alone: what the file is must be known before the rest is held to this form.
  // Throws Error{kData} where the file does not begin with a member named `name`.
  std::string First(std::string_view name) const;
  // Throws Error{kData} naming the byte at which the file is not as ArchiveWriter writes it, cut
  // off included.
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
