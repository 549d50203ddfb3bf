#include "harness/files/log_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>

#include "core/base/error.hpp"
#include "harness/files/plain_text.hpp"

namespace sparfuse::harness {
namespace {

void AddCharacter(std::uint32_t code, std::string& text) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

std::string FromUtf16(std::string_view bytes, bool big, const std::string& name) {
  std::string text;
  const auto unit = [&](std::size_t i) {
    const auto one = static_cast<unsigned char>(bytes[i]),
               two = static_cast<unsigned char>(bytes[i + 1]);
    return static_cast<std::uint32_t>(big ? one << 8 | two : two << 8 | one);
  };
  for (std::size_t i = 2; i < bytes.size(); i += 2) {
    std::uint32_t code = i + 1 < bytes.size() ? unit(i) : 0xdc00;
    if (code >= 0xd800 && code < 0xdc00 && i + 3 < bytes.size()) {
      const std::uint32_t low = unit(i + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        i += 2;
      }
    }
    if (code >= 0xd800 && code < 0xe000) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: byte {} is not valid UTF-16: expected the whole "
                                          "file in the encoding of its mark",
                                          name, i + 1));
    }
    AddCharacter(code, text);
  }
  return text;
}

void CheckUtf8(std::string_view text, const std::string& name) {
  int line = 1;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= ' ' && byte < 0x80) {  // ASCII, most of every log
      ++i;
      continue;
    }
    const Character character = FirstCharacter(text.substr(i));
    if (character.bytes == 0) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{}:{}: byte {} of the line is 0x{:02X}, not valid UTF-8: "
                                 "expected UTF-8, or --encoding latin-1",
                                 name, line, i - begin + 1, static_cast<unsigned char>(text[i])));
    }
    if (character.code == 0) {
      SPARFUSE_THROW(kConfig, fmt::format("{}:{}: byte {} of the line is NUL: expected text", name,
                                          line, i - begin + 1));
    }
    i += character.bytes;
    if (character.code != '\n') continue;
    ++line;
    begin = i;
  }
}

std::string WithNewlines(std::string text) {
  if (text.find('\r') == std::string::npos) return text;
  std::size_t to = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      text[to++] = text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      text[to++] = '\n';
    }
  }
  text.resize(to);
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
std::size_t Digits(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, IsDigit) - text.begin());
}
// Length of `text` up to and including `end`, if only `allowed` characters precede it; else 0.
std::size_t Through(std::string_view text, std::string_view end, bool (*allowed)(char)) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos || at == 0) return 0;
  return std::ranges::all_of(text.substr(0, at), allowed) ? at + end.size() : 0;
}
bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

// Length of a date like "Thu May  7 10:39:20 2026".
std::size_t DateLength(std::string_view text) {
  constexpr std::string_view kShape = "Aaa Aaa 99 99:99:99 9999";
  if (text.size() < kShape.size()) return 0;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const char c = text[i];
    const bool fits = kShape[i] == '9' ? IsDigit(c) || (i == 8 && c == ' ')
                      : kShape[i] == 'A' || kShape[i] == 'a'
                          ? std::isalpha(static_cast<unsigned char>(c)) != 0
                          : c == kShape[i];
    if (!fits) return 0;
  }
  return kShape.size();
}

// Length of a tag at the begin of a line; 0 if there is none.
std::size_t TagLength(std::string_view text) {
  const std::size_t date = DateLength(text);
  text.remove_prefix(date);
  if (!text.starts_with('[')) return 0;
  for (const std::string_view end : {"]<stdout>:", "]<stderr>:", "]<stddiag>:"}) {
    const auto allowed = [](char c) { return IsOfName(c) || c == ',' || c == '@' || c == '['; };
    if (const std::size_t length = Through(text, end, allowed)) return date + length;
  }
  return 0;
}
std::size_t SrunLength(std::string_view text) {
  const std::size_t digits = Digits(text);
  if (digits == 0 || digits > 7 || !text.substr(digits).starts_with(':')) return 0;
  if (digits + 1 == text.size()) return digits + 1;
  return text[digits + 1] == ' ' ? digits + 2 : 0;
}
std::size_t BracketedRankLength(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const std::size_t digits = Digits(text.substr(1));
  if (digits == 0 || digits > 7 || !text.substr(digits + 1).starts_with(']')) return 0;
  if (digits + 2 == text.size()) return digits + 2;
  return text[digits + 2] == ' ' ? digits + 3 : 0;
}
std::size_t TorchrunLength(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const std::size_t length = Through(text.substr(1), "]:", IsOfName);
  return length == 0 || !IsDigit(text[length - 2]) ? 0 : length + 1;
}
std::size_t PodLength(std::string_view text) {
  const std::string_view inner = text.substr(text.starts_with('[') ? 1 : 0);
  if (!inner.starts_with("pod/")) return 0;
  const auto allowed = [](char c) { return IsOfName(c) || c == '/'; };
  if (inner.size() == text.size()) return Through(text, " ", allowed);
  const std::size_t length = Through(inner, "]", allowed);
  return length == 0 ? 0 : length + 1;
}
// Length of "2026-05-07T10:39:20.123Z ", as kubectl and docker write it, or of a date as in
// TagLength.
std::size_t StampLength(std::string_view text) {
  std::size_t length = DateLength(text);
  if (length == 0) {
    constexpr std::string_view kShape = "9999-99-99T99:99:99";
    if (text.size() < kShape.size()) return 0;
    for (std::size_t i = 0; i < kShape.size(); ++i) {
      if (kShape[i] == '9' ? !IsDigit(text[i]) : text[i] != kShape[i]) return 0;
    }
    length = text.find_first_not_of("0123456789.,+-:Z", kShape.size());
    if (length == std::string_view::npos) return text.size();
  }
  if (length == text.size()) return length;
  return text[length] == ' ' ? length + 1 : text[length] == ':' ? length + 1 : 0;
}

struct Prefix {
  const char* name;
  std::size_t (*length)(std::string_view);
  bool is_only_a_tag;  // whether only a launcher prints it
};
constexpr Prefix kPrefixes[] = {{"tags of mpirun or horovodrun", TagLength, true},
                                {"labels of torchrun", TorchrunLength, false},
                                {"labels of srun", SrunLength, false},
                                {"labels of mpirun", BracketedRankLength, false},
                                {"names of pods", PodLength, false},
                                {"time stamps", StampLength, false}};

// The label that enough of the remaining lines begin with; null if there is none.
const Prefix* PrefixOf(const std::vector<LogLine>& lines, std::size_t& count) {
  for (const Prefix& prefix : kPrefixes) {
    count = static_cast<std::size_t>(std::ranges::count_if(
        lines, [&](const LogLine& line) { return prefix.length(line.text) > 0; }));
    if (prefix.is_only_a_tag ? count > 0 : 2 * count > lines.size()) return &prefix;
  }
  return nullptr;
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::string DecodedText(std::string_view bytes, const std::string& name,
                        const std::string& encoding) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // written by spreadsheets
  if (encoding == "latin-1") {
    std::string text;
    for (const char c : bytes) AddCharacter(static_cast<unsigned char>(c), text);
    return WithNewlines(std::move(text));
  }
  if (!encoding.empty() && encoding != "utf-8" && encoding != "any") {
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "encoding = \"{}\": expected utf-8, which also takes UTF-16 with its mark, or latin-1",
            encoding));
  }
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    std::string text = FromUtf16(bytes, bytes.starts_with("\xfe"), name);
    CheckUtf8(text, name);
    return WithNewlines(std::move(text));
  }
  if (bytes.starts_with(kMark)) bytes.remove_prefix(kMark.size());
  if (encoding != "any") CheckUtf8(bytes, name);
  return WithNewlines(std::string(bytes));
}

LogText LinesOfLog(std::string_view text) {
  LogText log;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    if (!line.empty()) log.lines.push_back({number, line, line});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  // Labels may follow one another: a time stamp, a tag, a pod's name.
  constexpr int kMostPrefixes = 4;
  std::size_t count = 0;
  for (int p = 0; p < kMostPrefixes; ++p) {
    const Prefix* const prefix = PrefixOf(log.lines, count);
    if (prefix == nullptr) break;
    bool shown = false;
    for (LogLine& line : log.lines) {
      const std::size_t length = prefix->length(line.text);
      if (length > 0 && !shown) {
        log.notes.push_back(fmt::format("{} (\"{}\") taken off before {} lines", prefix->name,
                                        line.text.substr(0, length), count));
        shown = true;
      }
      line.text = Trimmed(line.text.substr(length));
    }
    std::erase_if(log.lines, [](const LogLine& line) { return line.text.empty(); });
    if (log.lines.empty()) break;
  }
  return log;
}

std::string AsUtf8(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const std::size_t bytes = FirstCharacter(text).bytes;
    if (bytes == 0) {
      made += fmt::format("\\x{:02X}", static_cast<unsigned char>(text.front()));
    } else {
      made += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return made;
}

std::string OddCharacters(std::string_view text) {
  int at = 0;
  while (!text.empty()) {
    ++at;
    const Character character = FirstCharacter(text);
    if (character.bytes == 0) return "";
    text.remove_prefix(character.bytes);
    const std::uint32_t code = character.code;
    const char* what = nullptr;
    if (code == 0xad || (code >= 0x2010 && code <= 0x2015)) what = "a hyphen";
    if (code == 0x2212) what = "a minus";
    if (code == 0xa0 || (code >= 0x2000 && code <= 0x200a) || code == 0x202f || code == 0x205f ||
        code == 0x3000)
      what = "a space";
    if ((code >= 0x200b && code <= 0x200f) || code == 0x2060 || code == 0xfeff)
      what = "of no width";
    if (what != nullptr) return fmt::format("U+{:04X} ({}) at character {}", code, what, at);
  }
  return "";
}

}  // namespace sparfuse::harness
