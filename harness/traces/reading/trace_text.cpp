#include "harness/traces/reading/trace_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse::harness {

TraceText::TraceText(const std::filesystem::path& path)
    : path_(path), file_(path, O_RDONLY), digest_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
  ReadMore();
  packed_ = got_ >= 2 && raw_[0] == 0x1f && raw_[1] == 0x8b;
  if (!packed_) return;
  if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)
    SPARFUSE_THROW(kInternal, "cannot begin to unpack");
  unpacked_.resize(2 * kPiece);
}

TraceText::~TraceText() {
  if (packed_) inflateEnd(&stream_);
}

bool TraceText::ReadMore() {
  ssize_t got = 0;
  do got = ::read(file_.number(), raw_.data(), raw_.size());
  while (got < 0 && errno == EINTR);
  if (got < 0) FailAt("read", path_, errno);
  got_ = static_cast<std::size_t>(got);
  EVP_DigestUpdate(digest_.get(), raw_.data(), got_);
  stream_.next_in = raw_.data();
  stream_.avail_in = static_cast<uInt>(got_);
  return got_ > 0;
}

std::string_view TraceText::Next() {
  if (!packed_) {
    if (got_ == 0 || (std::exchange(taken_, true) && !ReadMore())) return {};
    return {reinterpret_cast<const char*>(raw_.data()), got_};
  }
  while (true) {
    if (stream_.avail_in == 0 && !ReadMore()) {
      if (in_member_) FailUnpacking("the packed file ends");
      return {};
    }
    if (!in_member_ && std::exchange(began_, true)) inflateReset(&stream_);
    in_member_ = true;
    stream_.next_out = unpacked_.data();
    stream_.avail_out = static_cast<uInt>(unpacked_.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END)
      in_member_ = false;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      FailUnpacking("the packed file is broken");
    const std::size_t made = unpacked_.size() - stream_.avail_out;
    done_ += made;
    if (made > 0) return {reinterpret_cast<const char*>(unpacked_.data()), made};
  }
}

void TraceText::FailUnpacking(const char* what) const {
  SPARFUSE_THROW(kConfig, fmt::format("{}: {} at byte {} of its text: expected a whole file: {}",
                                      path_.string(), what, done_, kCutOff));
}

std::string TraceText::Sha256() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(digest_.get(), bytes.data(), &size);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

std::string UnpackedText(const std::filesystem::path& file) {
  std::string all;
  TraceText text(file);
  for (std::string_view piece = text.Next(); !piece.empty(); piece = text.Next()) all += piece;
  return all;
}

}  // namespace sparfuse::harness
