#include "harness/files/plain_text.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace sparfuse::harness {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: none that is UTF-8 begins here
};

Character CharacterAt(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes > text.size() - at) return {};
  std::uint32_t code = first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  return {code, bytes};
}

bool IsPlain(std::uint32_t code) {
  if (code < 0x20) return code == '\n' || code == '\t';
  if (code >= 0x7f && code <= 0x9f) return false;
  const bool turns = code == 0x61c || code == 0x200e || code == 0x200f ||
                     (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  const bool ends = code == 0x2028 || code == 0x2029;
  return !turns && !ends && code != 0xfeff;
}

}  // namespace

bool IsPlainText(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.bytes == 0 || !IsPlain(character.code)) return false;
    at += character.bytes;
  }
  return true;
}

std::string Visible(std::string_view text) {
  std::string visible;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.bytes == 0) {
      visible += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
      continue;
    }
    if (IsPlain(character.code)) {
      visible += text.substr(at, character.bytes);
    } else {
      visible += fmt::format("\\u{:04x}", character.code);
    }
    at += character.bytes;
  }
  return visible;
}

}  // namespace sparfuse::harness
