// Reads prepared data: a folder that `sparfuse data prepare` made from a data set in one of its
// usual forms, mapped into memory. It does not need LibTorch.
//
// The first file is meta.json, {"format": 2, "id", "content", "source"}. `content` describes the
// folder, with size and CRC-32 of every file. `id` is the SHA-256 of its canonical JSON, and so
// identifies the whole data set, from any source. Images have SPLIT.records (all records end to
// end), SPLIT.index (u64 offsets, count + 1), SPLIT.labels (u16) and SPLIT.sums (u32, a record's
// CRC-32). Texts have SPLIT.tokens (u16 or u32). Questions have records, index and sums like
// images, and test.json, the input of scoring (harness/data/sparfuse_data/squad.py). Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::workloads {

inline constexpr int kPreparedFormat = 2;

// data_directory / NAME; a name with a slash is a folder itself.
std::filesystem::path PreparedFolder(const std::filesystem::path& data_directory,
                                     std::string_view name);

// A file mapped for reading, with its size at that time.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error{kData} unless it is a file of `bytes` bytes.
  MappedFile(const std::filesystem::path& file, std::uint64_t bytes);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  // Throws Error{kData} if the file has another size now: reading past its end would end the
  // process.
  void CheckSize() const;

 private:
  std::filesystem::path file_;
  std::span<const std::uint8_t> bytes_;
  int descriptor_ = -1;
};

// The content of meta.json, for callers that need no more. Throws Error{kData} naming the folder
// and the remedy if there is no meta.json, it has another format, or its id is not its content's.
struct PreparedMeta {
  std::string id;
  std::string kind;    // "images", "text" or "questions"
  std::string coding;  // images: "files" (JPEG, or binary PPM) or "planes" (shape, CHW bytes)
  std::vector<std::size_t> shape;
  std::vector<std::string> classes;  // in the order of their numbers
  std::string tokens;                // of texts: the kind of a token, "words"
  std::size_t vocabulary = 0;
  std::size_t token_bytes = 0;
  std::size_t window = 0;  // of questions: pieces
  struct File {
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };
  struct Split {
    std::size_t count = 0;              // images, tokens or windows
    std::map<std::string, File> files;  // by extension
  };
  std::map<std::string, Split> splits;
};
PreparedMeta ReadPreparedMeta(const std::filesystem::path& folder);

class PreparedData {
 public:
  // Maps the folder and checks all of it but records, which are checked as they are read. Throws as
  // ReadPreparedMeta.
  explicit PreparedData(const std::filesystem::path& folder);

  const PreparedMeta& meta() const noexcept { return meta_; }
  std::size_t classes() const noexcept { return meta_.classes.size(); }
  std::size_t vocabulary() const noexcept { return meta_.vocabulary; }

  // Throws Error{kData} if the trial was planned with another data set.
  void CheckId(std::string_view expected) const;
  // Throws Error{kConfig} if a workload of this kind of data cannot train on it.
  void CheckFits(std::string_view workload, std::string_view kind_of_data) const;

  // The split of evaluations during training: "valid" if there is one, else "test".
  std::string_view evaluation_split() const { return splits_.contains("valid") ? "valid" : "test"; }

  // Split is "train" or the evaluations'.
  std::size_t count(std::string_view split) const { return SplitOf(split).count; }
  std::uint16_t Label(std::string_view split, std::size_t image) const;
  // The record of an image or a window. Throws Error{kData} if its bytes differ from the prepared
  // ones. Cost: a CRC-32 of it.
  std::span<const std::uint8_t> Record(std::string_view split, std::size_t image) const;
  // Of questions: the JSON that scoring needs.
  std::string_view Key(std::string_view split) const;
  // Tokens [begin, begin + out.size()) of a text.
  void CopyTokens(std::string_view split, std::size_t begin, std::span<std::int64_t> out) const;

 private:
  struct Split {
    std::size_t count = 0;
    MappedFile records, index, labels, sums, tokens, key;
  };
  const Split& SplitOf(std::string_view name) const;

  std::filesystem::path folder_;
  PreparedMeta meta_;
  std::map<std::string, Split, std::less<>> splits_;
};

}  // namespace sparfuse::workloads
