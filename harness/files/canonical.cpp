#include "harness/files/canonical.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

void AppendNumber(double value, std::string& out) {
  if (!std::isfinite(value))
    SPARFUSE_THROW(kInternal, "a number without canonical form: not finite");
  if (value == 0) value = 0;  // drops the sign of a negative zero
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  out.append(text.data(), end.ptr);
}

void AppendText(const std::string& text, std::string& out) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) {  // most strings are
    out += '"';
    out += text;
    out += '"';
  } else {
    out += nlohmann::json(text).dump();
  }
}

void Append(const nlohmann::json& value, std::string& out) {
  switch (value.type()) {
    case nlohmann::json::value_t::object: {
      out += '{';
      bool first = true;
      for (const auto& [key, member] : value.items()) {  // nlohmann::json keeps keys sorted
        if (!first) out += ',';
        first = false;
        AppendText(key, out);
        out += ':';
        Append(member, out);
      }
      out += '}';
      return;
    }
    case nlohmann::json::value_t::array: {
      out += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out += ',';
        Append(value[i], out);
      }
      out += ']';
      return;
    }
    case nlohmann::json::value_t::string:
      return AppendText(value.get_ref<const std::string&>(), out);
    case nlohmann::json::value_t::number_float:
      return AppendNumber(value.get<double>(), out);
    default:
      out += value.dump();
  }
}

}  // namespace

std::string CanonicalJson(const nlohmann::json& value) {
  std::string out;
  Append(value, out);
  return out;
}

std::string Sha256Hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    SPARFUSE_THROW(kInternal, "libcrypto could not compute a SHA-256");
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string ShortHash(std::string_view bytes) {
  constexpr std::size_t kDigits = 12;
  return Sha256Hex(bytes).substr(0, kDigits);
}

std::string ContentHash(const nlohmann::json& value) { return Sha256Hex(CanonicalJson(value)); }

}  // namespace sparfuse::harness
