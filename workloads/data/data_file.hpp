// Reads the data files of the workloads: images or text in one checked binary file each. No
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace sparfuse::workloads {

// A data file that a workload reads. Results depend on size and checksum: a file of another edition
// is refused.
struct DataFileSpec {
  std::string name;         // data set, as scripts/fetch_data.py takes it
  std::string path;         // relative to the data directory
  std::uint64_t bytes = 0;  // of the whole file, its header of 64 bytes included
  // As the header states it: of the header's first 60 bytes and the payload.
  std::uint32_t crc32 = 0;
};

// Images in a fixed order; the first `train_count` are for training, the rest for the test.
struct ImageSet {
  std::size_t count = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t train_count = 0;
  std::vector<std::uint8_t> payload;  // pixels [count, height, width], then labels [count]

  std::span<const std::uint8_t> pixels(std::size_t image) const {
    return std::span(payload).subspan(image * height * width, height * width);
  }
  std::uint8_t label(std::size_t image) const { return payload[count * height * width + image]; }
};

// A text as tokens, one a character; the first `train_count` are for training, the rest for
// validation.
struct TextSet {
  std::size_t count = 0;
  std::size_t vocabulary_size = 0;
  std::size_t train_count = 0;
  std::vector<std::uint8_t> payload;  // characters [vocabulary_size], then tokens [count]

  std::span<const std::uint8_t> vocabulary() const {
    return std::span(payload).first(vocabulary_size);
  }
  std::span<const std::uint8_t> tokens() const {
    return std::span(payload).subspan(vocabulary_size, count);
  }
};

// The directory that holds the data files: `given` unless empty, else the environment's
// SPARFUSE_DATA, else results/data of the tree with the program or, if the program is in none, of
// the tree with the current folder, else of the checkout that was built.
std::filesystem::path ResolveDataDirectory(const std::filesystem::path& given);

// Throws Error{kData} naming the file, the expected form, the finding and the command that makes
// the file, unless it exists with the expected size and its header states the expected checksum.
// Cost: one stat and one read of 64 bytes; the payload is checked when it is read.
void CheckDataFile(const std::filesystem::path& data_directory, const DataFileSpec& spec);

// Read a whole file and check everything: size, header, checksum of the payload, and that labels
// and tokens are in range. Errors as CheckDataFile. Cost: one read, a few milliseconds.
ImageSet ReadImages(const std::filesystem::path& data_directory, const DataFileSpec& spec);
TextSet ReadText(const std::filesystem::path& data_directory, const DataFileSpec& spec);

// SHA-256 in hexadecimal digits.
std::string Sha256Of(std::string_view bytes);

// CRC-32 (IEEE 802.3) of `bytes`, continued from `crc`.
std::uint32_t Crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0);

}  // namespace sparfuse::workloads
