#include "harness/files/plain_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "core/base/expression.hpp"

namespace sparfuse::harness {

bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

bool IsPlain(std::uint32_t code) {
  if (code < 0x20) return code == '\n' || code == '\t';
  if (code >= 0x7f && code <= 0x9f) return false;
  const bool turns = code == 0x61c || code == 0x200e || code == 0x200f ||
                     (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  const bool ends = code == 0x2028 || code == 0x2029;
  const bool none = code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
  return !turns && !ends && !none && code != 0xfeff;
}

Character FirstCharacter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = byte(0) & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool IsPlainText(std::string_view text) {
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    if (first.bytes == 0 || !IsPlain(first.code)) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

std::string Visible(std::string_view text) {
  std::string visible;
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    const std::size_t bytes = std::max<std::size_t>(first.bytes, 1);
    if (first.bytes == 0) {
      visible += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (IsPlain(first.code)) {
      visible += text.substr(0, bytes);
    } else {
      visible += fmt::format("\\u{:04x}", first.code);
    }
    text.remove_prefix(bytes);
  }
  return visible;
}

bool IsUtcTime(std::string_view text) {
  static const Expression kForm(
      R"(^(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,9})?Z$)", "a time");
  std::vector<std::string_view> found;
  if (!kForm.Find(text, found)) return false;
  const auto number = [&](std::size_t group) { return std::stoi(std::string(found[group])); };
  return std::chrono::year_month_day(std::chrono::year(number(1)),
                                     std::chrono::month(static_cast<unsigned>(number(2))),
                                     std::chrono::day(static_cast<unsigned>(number(3))))
      .ok();
}

}  // namespace sparfuse::harness
