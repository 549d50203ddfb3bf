// Reads data files. scripts/fetch_data.py makes them and documents their format.
#include "workloads/data/data_file.hpp"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/program_folder.hpp"

static_assert(std::endian::native == std::endian::little, "data files are little-endian");

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kCheckedHeaderBytes = 60;
constexpr char kMagic[9] = "SPARFDAT";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kKindImages = 1;
constexpr std::uint32_t kKindText = 2;
constexpr int kImageClasses = 10;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::uint64_t dims[4];
  std::uint64_t payload_bytes;
  std::uint32_t reserved;
  std::uint32_t crc32;
};
static_assert(sizeof(Header) == kHeaderBytes);

std::string Hex(std::uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

[[noreturn]] void Fail(const std::filesystem::path& file, const DataFileSpec& spec,
                       const std::string& problem) {
  SPARFUSE_THROW(kData, "data file " + file.string() + " " + problem +
                            "; make it with: .venv/bin/python scripts/fetch_data.py " + spec.name +
                            " --data-dir " + file.parent_path().parent_path().string());
}

std::uint64_t SizeOf(const std::filesystem::path& file, const DataFileSpec& spec) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(file, error);
  if (error) {
    Fail(file, spec,
         "cannot be read: " + error.message() + ", expected " + std::to_string(spec.bytes) +
             " bytes");
  }
  return size;
}

// Reads exactly `bytes` from the start of the file.
std::vector<std::uint8_t> ReadStart(const std::filesystem::path& file, const DataFileSpec& spec,
                                    std::size_t bytes) {
  std::vector<std::uint8_t> content(bytes);
  std::ifstream stream(file, std::ios::binary);
  stream.rdbuf()->pubsetbuf(nullptr, 0);
  stream.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(bytes));
  if (static_cast<std::size_t>(stream.gcount()) != bytes) {
    Fail(file, spec,
         "gave " + std::to_string(stream.gcount()) + " bytes, expected " + std::to_string(bytes));
  }
  return content;
}

Header CheckHeader(const std::filesystem::path& file, const DataFileSpec& spec,
                   std::span<const std::uint8_t> content) {
  Header header;
  std::memcpy(&header, content.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 || header.version != kVersion) {
    Fail(file, spec,
         "does not start with a SPARFDAT header of version " + std::to_string(kVersion));
  }
  if (header.crc32 != spec.crc32) {
    Fail(file, spec,
         "is another edition or damaged: its header states CRC-32 " + Hex(header.crc32) +
             ", expected " + Hex(spec.crc32) + "; remove it first");
  }
  return header;
}

void CheckSize(const std::filesystem::path& file, const DataFileSpec& spec) {
  const std::uint64_t size = SizeOf(file, spec);
  if (size != spec.bytes || size < kHeaderBytes) {
    Fail(file, spec,
         std::string(size < spec.bytes ? "is truncated" : "has a wrong size") + ": " +
             std::to_string(size) + " bytes, expected " + std::to_string(spec.bytes));
  }
}

// Returns the checked header, and puts the bytes after it into `payload`.
Header ReadWhole(const std::filesystem::path& file, const DataFileSpec& spec, std::uint32_t kind,
                 std::vector<std::uint8_t>& payload) {
  CheckSize(file, spec);
  std::vector<std::uint8_t> content = ReadStart(file, spec, spec.bytes);
  const Header header = CheckHeader(file, spec, content);
  const auto all = std::span<const std::uint8_t>(content);
  const std::uint32_t found =
      Crc32(all.subspan(kHeaderBytes), Crc32(all.first(kCheckedHeaderBytes)));
  if (found != spec.crc32) {
    Fail(file, spec,
         "is corrupt: CRC-32 of its content is " + Hex(found) + ", expected " + Hex(spec.crc32));
  }
  if (header.kind != kind) {
    Fail(file, spec,
         "holds data of kind " + std::to_string(header.kind) + ", expected kind " +
             std::to_string(kind));
  }
  content.erase(content.begin(), content.begin() + kHeaderBytes);
  payload = std::move(content);
  return header;
}

}  // namespace

std::string Sha256Of(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    SPARFUSE_THROW(kInternal, "libcrypto could not compute a SHA-256");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::uint32_t Crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc) {
  return static_cast<std::uint32_t>(crc32_z(crc, bytes.data(), bytes.size()));
}

std::filesystem::path ResolveDataDirectory(const std::filesystem::path& given) {
  if (!given.empty()) return given;
  const char* environment = std::getenv("SPARFUSE_DATA");
  if (environment != nullptr && *environment != '\0') return environment;
  const std::filesystem::path data = std::filesystem::path("results") / "data";
  const std::filesystem::path own = OwnFolder(data);
  return (own.empty() ? std::filesystem::path(SPARFUSE_SOURCE_DIRECTORY) : own) / data;
}

void CheckDataFile(const std::filesystem::path& data_directory, const DataFileSpec& spec) {
  const std::filesystem::path file = data_directory / spec.path;
  CheckSize(file, spec);
  CheckHeader(file, spec, ReadStart(file, spec, kHeaderBytes));
}

ImageSet ReadImages(const std::filesystem::path& data_directory, const DataFileSpec& spec) {
  const std::filesystem::path file = data_directory / spec.path;
  ImageSet set;
  const Header header = ReadWhole(file, spec, kKindImages, set.payload);
  set.count = header.dims[0];
  set.height = header.dims[1];
  set.width = header.dims[2];
  set.train_count = header.dims[3];
  if (set.count * (set.height * set.width + 1) != set.payload.size() ||
      set.train_count > set.count) {
    Fail(file, spec,
         "contradicts itself: " + std::to_string(set.count) + " images of " +
             std::to_string(set.height) + " x " + std::to_string(set.width) + " in " +
             std::to_string(set.payload.size()) + " bytes");
  }
  for (std::size_t i = 0; i < set.count; ++i) {
    if (set.label(i) >= kImageClasses) {
      Fail(file, spec,
           "has label " + std::to_string(set.label(i)) + " for image " + std::to_string(i) +
               ", expected 0 to 9");
    }
  }
  return set;
}

TextSet ReadText(const std::filesystem::path& data_directory, const DataFileSpec& spec) {
  const std::filesystem::path file = data_directory / spec.path;
  TextSet set;
  const Header header = ReadWhole(file, spec, kKindText, set.payload);
  set.count = header.dims[0];
  set.vocabulary_size = header.dims[1];
  set.train_count = header.dims[2];
  if (set.count + set.vocabulary_size != set.payload.size() || set.train_count > set.count ||
      set.vocabulary_size > 256) {
    Fail(file, spec,
         "contradicts itself: " + std::to_string(set.count) + " tokens and " +
             std::to_string(set.vocabulary_size) + " characters in " +
             std::to_string(set.payload.size()) + " bytes");
  }
  const auto tokens = set.tokens();
  const auto largest = std::max_element(tokens.begin(), tokens.end());
  if (largest != tokens.end() && *largest >= set.vocabulary_size) {
    Fail(file, spec,
         "has token " + std::to_string(*largest) + ", expected less than " +
             std::to_string(set.vocabulary_size));
  }
  return set;
}

}  // namespace sparfuse::workloads
