#include "harness/bundle/archive.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::size_t kLongestInHeader = 100;         // in a header
constexpr std::uint64_t kLargestMember = 1ull << 33;  // the most that eleven octal digits hold
constexpr char kFile = '0', kExtended = 'x';

std::uint64_t PaddedSize(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

void Put(std::string& block, std::size_t at, std::string_view text) {
  block.replace(at, text.size(), text);
}

// Writes fields at POSIX's offsets. Octal numbers end with a NUL.
std::string HeaderOf(std::string_view name, std::uint64_t size, char type) {
  std::string block(kBlock, '\0');
  Put(block, 0, name.substr(0, kLongestInHeader));
  Put(block, 100, "0000644");
  Put(block, 108, "0000000");  // user and group
  Put(block, 116, "0000000");
  Put(block, 124, fmt::format("{:011o}", size));
  Put(block, 136, "00000000000");  // time of the last change
  Put(block, 148, "        ");     // the checksum counts as spaces here
  block[156] = type;
  Put(block, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  Put(block, 148, std::string_view(fmt::format("{:06o}", sum) + '\0' + ' '));
  return block;
}

// "30 path=trials/...\n". The first number is the record's own length.
std::string PathRecord(std::string_view name) {
  const std::string rest = fmt::format(" path={}\n", name);
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length)
    length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

std::string Padded(std::string_view content) {
  std::string bytes(content);
  bytes.resize(PaddedSize(content.size()), '\0');
  return bytes;
}

// All headers before a member's content.
std::string HeadersOf(std::string_view name, std::uint64_t size) {
  if (name.size() <= kLongestInHeader) return HeaderOf(name, size, kFile);
  const std::string record = PathRecord(name);
  return HeaderOf("path", record.size(), kExtended) + Padded(record) + HeaderOf(name, size, kFile);
}

std::optional<std::uint64_t> OctalIn(std::string_view block, std::size_t at, std::size_t digits) {
  std::uint64_t number = 0;
  for (const char c : block.substr(at, digits)) {
    if (c < '0' || c > '7') return std::nullopt;
    number = number * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return number;
}

}  // namespace

ArchiveWriter::ArchiveWriter(const std::filesystem::path& path)
    : file_(path, fmt::format(".{}.tmp", ::getpid())) {}

void ArchiveWriter::Add(std::string_view name, std::string_view content) {
  if (content.size() >= kLargestMember)
    SPARFUSE_THROW(kData,
                   fmt::format("{}: {} bytes; expected less than 8 GiB", name, content.size()));
  file_.Write(HeadersOf(name, content.size()));
  file_.Write(content);
  file_.Write(std::string(PaddedSize(content.size()) - content.size(), '\0'));
}

void ArchiveWriter::Commit() {
  file_.Write(std::string(2 * kBlock, '\0'));
  file_.Commit();
}

ArchiveReader::ArchiveReader(const std::filesystem::path& path)
    : path_(path), file_(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, "read") {
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) FailAt("read", path, errno);
  if (!S_ISREG(status.st_mode))
    SPARFUSE_THROW(kData, fmt::format("{}: expected a bundle, a regular file", path.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void ArchiveReader::Broken(std::uint64_t offset, std::string_view why) const {
  SPARFUSE_THROW(kData, fmt::format("{}: byte {}: {}; the file was cut off, damaged or edited: "
                                    "expected it as `sparfuse export` wrote it",
                                    path_.string(), offset, why));
}

std::string ArchiveReader::Read(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset) Broken(size_, "it ends here");
  std::string bytes(size, '\0');
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n = ::pread(file_.number(), bytes.data() + done, size - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailAt("read", path_, errno);
    if (n == 0) Broken(offset + done, "it ends here");
    done += static_cast<std::uint64_t>(n);
  }
  return bytes;
}

std::string ArchiveReader::First(std::string_view name) const {
  const std::string header = Read(0, std::min(size_, kBlock));
  const auto size = header.size() < kBlock ? std::nullopt : OctalIn(header, 124, 11);
  if (!size || header.substr(0, name.size() + 1) != std::string(name) + '\0') {
    if (header.starts_with("\x1f\x8b")) {
      SPARFUSE_THROW(kData, fmt::format("{0}: it is compressed by gzip: expected a bundle, which "
                                        "`gunzip --keep {0}` makes of it",
                                        path_.string()));
    }
    SPARFUSE_THROW(kData, fmt::format("{}: it does not begin with {}: expected a bundle that "
                                      "`sparfuse export` wrote",
                                      path_.string(), name));
  }
  return Read(kBlock, *size);
}

std::vector<ArchiveMember> ArchiveReader::Members() const {
  std::vector<ArchiveMember> members;
  const std::string end(2 * kBlock, '\0');
  std::uint64_t at = 0;
  while (true) {
    std::string header = Read(at, kBlock);
    if (header == std::string_view(end).substr(0, kBlock)) break;
    std::string name = header.substr(0, std::min(header.find('\0'), kLongestInHeader));
    std::uint64_t headers = kBlock;
    if (header[156] == kExtended) {
      const auto size = OctalIn(header, 124, 11);
      if (!size || *size > 1 << 16) Broken(at, "no such header is written");
      const std::string record = Read(at + kBlock, *size);
      const std::size_t begin = record.find('=') + 1;
      name = begin == 0 ? "" : record.substr(begin, record.size() - begin - 1);
      headers = 2 * kBlock + PaddedSize(*size);
      header = Read(at + headers - kBlock, kBlock);
    }
    const auto size = OctalIn(header, 124, 11);
    if (!size || Read(at, headers) != HeadersOf(name, *size))
      Broken(at, "no such header is written");
    const ArchiveMember member{name, at + headers, *size};
    const std::uint64_t padded = PaddedSize(member.size);
    const std::string padding = Read(member.offset + member.size, padded - member.size);
    if (padding.find_first_not_of('\0') != std::string::npos)
      Broken(member.offset + member.size, "expected zeros");
    const bool again = !members.empty() && members.front().name == name;
    if (again) Broken(at, fmt::format("a second {}", name));
    if (members.size() > 1 && members.back().name >= name) Broken(at, "members are not in order");
    members.push_back(member);
    at = member.offset + padded;
  }
  if (size_ - at != end.size() || Read(at, end.size()) != end)
    Broken(at, "expected two blocks of zeros, and the end");
  return members;
}

std::string ArchiveReader::Content(const ArchiveMember& member) const {
  return Read(member.offset, member.size);
}

}  // namespace sparfuse::harness
