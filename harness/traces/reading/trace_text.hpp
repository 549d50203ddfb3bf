// Reads the text of a trace or a log piece by piece, and unpacks it if it is packed.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/durable_file.hpp"

struct evp_md_ctx_st;

namespace sparfuse::harness {

inline constexpr const char* kCutOff = "was the profiler killed while writing?";

// Plain or gzip, decided by the first bytes; a gzip file may have several members. Throws
// Error{kConfig} naming file and byte if a packed file is cut off or broken.
class TraceText {
 public:
  explicit TraceText(const std::filesystem::path& path);
  ~TraceText();
  TraceText(const TraceText&) = delete;
  TraceText& operator=(const TraceText&) = delete;

  // The next piece, valid until the next call; "" at the end.
  std::string_view Next();

  // Of the file's bytes. Precondition: the text was read to its end.
  std::string Sha256();

 private:
  bool ReadMore();
  [[noreturn]] void FailUnpacking(const char* what) const;

  static constexpr std::size_t kPiece = std::size_t{1} << 18;

  std::filesystem::path path_;
  Descriptor file_;
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> digest_;
  std::vector<unsigned char> raw_ = std::vector<unsigned char>(kPiece);
  std::vector<unsigned char> unpacked_;
  z_stream stream_{};
  std::size_t got_ = 0, done_ = 0;  // bytes read last; bytes of text given
  bool packed_ = false, taken_ = false, in_member_ = false, began_ = false;
};

// All bytes of a text file, unpacked if it is packed. Throws as TraceText.
std::string UnpackedText(const std::filesystem::path& file);

}  // namespace sparfuse::harness
