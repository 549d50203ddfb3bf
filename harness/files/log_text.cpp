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

// Windows has signs where ISO 8859-1 has controls that no text contains: the euro, dashes, quotes.
std::uint32_t CodeOfLatin(unsigned char byte) {
  static constexpr std::uint16_t kOfWindows[] = {
      0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
      0x2039, 0x0152, 0x8d,   0x017d, 0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
      0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};
  return byte >= 0x80 && byte < 0xa0 ? kOfWindows[byte - 0x80] : byte;
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

void CheckUtf8(std::string_view text, const std::string& name, std::string_view otherwise) {
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
      SPARFUSE_THROW(
          kConfig,
          fmt::format("{}:{}: byte {} of the line is 0x{:02X}, not valid UTF-8: "
                      "expected UTF-8{}",
                      name, line, i - begin + 1, static_cast<unsigned char>(text[i]), otherwise));
    }
    if (character.code == 0) {
      SPARFUSE_THROW(
          kConfig,
          fmt::format("{}:{}: byte {} of the line is NUL: expected text{}", name, line,
                      i - begin + 1, i < 2 ? "; UTF-16 needs its mark (FF FE) at the begin" : ""));
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

bool IsOddSpace(std::uint32_t code) {
  return code == 0xa0 || (code >= 0x2000 && code <= 0x200a) || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

// What a terminal shows of the text: without colours and moves of the cursor. What backspaces go
// over, as progress bars do, is a line of its own.
std::string WithoutTerminal(std::string text) {
  if (text.find_first_of("\x1b\b") == std::string::npos) return text;
  std::size_t to = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\b') {
      if (to > 0 && text[to - 1] != '\n') text[to++] = '\n';
    } else if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i = std::min(text.find_first_not_of("0123456789;?", i + 2), text.size());
    } else {
      text[to++] = text[i];
    }
  }
  text.resize(to);
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
std::size_t Digits(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, IsDigit) - text.begin());
}
std::size_t NameLength(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, IsOfName) - text.begin());
}

// Length of `text` up to and including `end`, if only `allowed` characters precede it; else 0.
std::size_t Through(std::string_view text, std::string_view end, bool (*allowed)(char)) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos || at == 0) return 0;
  return std::ranges::all_of(text.substr(0, at), allowed) ? at + end.size() : 0;
}

// Length of a shape at the begin of `text`: 9 stands for a digit, _ for a digit or a space, a for a
// letter, and every other character for itself. 0 if the text begins otherwise.
std::size_t ShapeLength(std::string_view text, std::string_view shape) {
  if (text.size() < shape.size()) return 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const char c = text[i];
    const bool fits = shape[i] == '9'   ? IsDigit(c)
                      : shape[i] == '_' ? IsDigit(c) || c == ' '
                      : shape[i] == 'a' ? IsLetter(c)
                                        : c == shape[i];
    if (!fits) return 0;
  }
  return shape.size();
}

// "Thu May  7 10:39:20 2026", as mpirun writes the time.
std::size_t DateLength(std::string_view text) {
  return ShapeLength(text, "aaa aaa _9 99:99:99 9999");
}

// "[1,0]<stdout>:", and with Open MPI 5 "[prterun-n1-7@1,0][n1:99]<stdout>:".
std::size_t TagLength(std::string_view text) {
  const std::size_t date = DateLength(text);
  text.remove_prefix(date);
  for (const std::string_view end : {"<stdout>:", "<stderr>:", "<stddiag>:"}) {
    if (date > 0 && text.starts_with(end)) return date + end.size();
    const auto allowed = [](char c) {
      return IsOfName(c) || c == ',' || c == '@' || c == '[' || c == ']' || c == ':';
    };
    const std::size_t length = text.starts_with('[') ? Through(text, end, allowed) : 0;
    if (length > 0 && text[length - end.size() - 1] == ']') return date + length;
  }
  return 0;
}

std::size_t SrunLength(std::string_view text) {
  const std::size_t digits = Digits(text);
  if (digits == 0 || digits > 7 || !text.substr(digits).starts_with(':')) return 0;
  if (digits + 1 == text.size()) return digits + 1;
  return text[digits + 1] == ' ' ? digits + 2 : 0;
}

// "[0] ", and with MPICH's patterns "[0@node1] ".
std::size_t BracketedRankLength(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const std::size_t digits = Digits(text.substr(1));
  if (digits == 0 || digits > 7) return 0;
  std::size_t end = digits + 1;
  if (text.substr(end).starts_with('@')) end += 1 + NameLength(text.substr(end + 1));
  if (!text.substr(end).starts_with(']')) return 0;
  if (end + 1 == text.size()) return end + 1;
  return text[end + 1] == ' ' ? end + 2 : 0;
}

std::size_t TorchrunLength(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const auto allowed = [](char c) { return IsOfName(c) || c == ':'; };
  const std::size_t length = Through(text.substr(1), "]:", allowed);
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

// "worker-1  | ", as docker compose writes the container.
std::size_t ContainerLength(std::string_view text) {
  const std::size_t name = NameLength(text);
  if (name < 2 || !IsLetter(text[0]) || !IsDigit(text[name - 1])) return 0;
  const std::size_t bar = text.find_first_not_of(' ', name);
  if (bar == name || bar == std::string_view::npos || text[bar] != '|') return 0;
  return text.substr(bar + 1).starts_with(' ') ? bar + 2 : bar + 1 == text.size() ? bar + 1 : 0;
}

// "(Train pid=77, ip=10.0.0.4) ", as Ray writes its workers.
std::size_t RayLength(std::string_view text) {
  if (!text.starts_with('(')) return 0;
  const std::size_t end = text.find(") ");
  const std::size_t pid = text.find(" pid=");
  return pid < end && end != std::string_view::npos && IsDigit(text[pid + 5]) ? end + 2 : 0;
}

// "worker-1: " or "10.0.0.4: ", as pdsh and clush write the host. Its name has a digit, unlike the
// word of a line; an address has three dots, unlike a number.
std::size_t HostLength(std::string_view text) {
  const std::size_t name = NameLength(text);
  if (name < 2 || !text.substr(name).starts_with(':')) return 0;
  const std::string_view host = text.substr(0, name);
  const bool address = std::ranges::count(host, '.') == 3 && IsDigit(host.back());
  if (!IsLetter(host[0]) && !address) return 0;
  if (std::ranges::none_of(host, IsDigit)) return 0;
  if (name + 1 == text.size()) return name + 1;
  return text[name + 1] == ' ' ? name + 2 : 0;
}

constexpr std::string_view kLevels[] = {"DEBUG", "INFO",     "WARNING", "WARN",
                                        "ERROR", "CRITICAL", "FATAL"};

// "INFO:root:", as Python's logging writes a message without a format of the program's own.
std::size_t LoggerLength(std::string_view text) {
  for (const std::string_view level : kLevels) {
    if (!text.starts_with(level) || !text.substr(level.size()).starts_with(':')) continue;
    const std::size_t name = NameLength(text.substr(level.size() + 1));
    const std::size_t end = level.size() + 1 + name;
    if (name > 0 && text.substr(end).starts_with(':')) return end + 1;
  }
  return 0;
}

// Length of a level behind a stamp: "INFO ", "[INFO] ", "- train - INFO - ".
std::size_t LevelLength(std::string_view text) {
  constexpr std::string_view kSigns = " -|:[](),";
  std::size_t at = 0;
  for (int word = 0; word < 2; ++word) {
    at = std::min(text.find_first_not_of(kSigns, at), text.size());
    const std::size_t end = at + NameLength(text.substr(at));
    for (const std::string_view level : kLevels) {
      if (text.substr(at, end - at) == level)
        return std::min(
            text.find_first_not_of(kSigns.substr(0, 4), end + text.substr(end).starts_with(']')),
            text.size());
    }
    // Only a logger's name between signs may stand before the level.
    const std::string_view rest = text.substr(end);
    if (!rest.starts_with(" - ") && !rest.starts_with(" | ") && !rest.starts_with("] [")) return 0;
    at = end;
  }
  return 0;
}

// Times as kubectl, docker, ts, syslog, glog and Python's logging write them, perhaps in brackets,
// with the level of the message behind.
std::size_t StampLength(std::string_view text) {
  const std::size_t bracket = text.starts_with('[') ? 1 : 0;
  const std::string_view inner = text.substr(bracket);
  std::size_t length = DateLength(inner);
  for (const char* shape : {"9999-99-99T99:99:99", "9999-99-99 99:99:99", "9999/99/99 99:99:99"})
    length = std::max(length, ShapeLength(inner, shape));
  if (length > 0) {
    length = std::min(inner.find_first_not_of("0123456789.,+-:Z", length), inner.size());
    if (bracket > 0 && !inner.substr(length).starts_with(']')) return 0;
    length += 2 * bracket;
  } else if (const std::size_t glog = bracket > 0 ? 0 : ShapeLength(text, "a9999 99:99:99.");
             glog > 0) {
    const std::size_t end = text.find("] ", glog);
    return end == std::string_view::npos ? 0 : end + 2;
  } else if (const std::size_t syslog = bracket > 0 ? 0 : ShapeLength(text, "aaa _9 99:99:99 ");
             syslog > 0) {
    // The host and the program follow.
    const std::size_t host = syslog + NameLength(text.substr(syslog));
    const std::size_t end = text.find(": ", host);
    return host == syslog || end == std::string_view::npos ||
                   text.substr(host + 1, end - host - 1).find(' ') != std::string_view::npos
               ? 0
               : end + 2;
  } else {
    return 0;
  }
  if (length == text.size()) return length;
  if (text[length] != ' ' && text[length] != ':') return 0;
  ++length;
  return length + LevelLength(text.substr(length));
}

// A label that launchers and loggers put before the lines of a program: ranks, hosts, pods, times.
struct LogLabel {
  const char* name;                         // "labels of srun"
  std::size_t (*length)(std::string_view);  // of the label at the begin of a line; 0: none
  bool is_only_a_tag;                       // whether only a launcher prints it
};

// A line may have several, one after another.
constexpr LogLabel kLabels[] = {{"tags of mpirun or horovodrun", TagLength, true},
                                {"labels of torchrun", TorchrunLength, false},
                                {"labels of srun", SrunLength, false},
                                {"labels of mpirun", BracketedRankLength, false},
                                {"names of pods", PodLength, false},
                                {"names of containers", ContainerLength, false},
                                {"labels of Ray", RayLength, true},
                                {"names of hosts", HostLength, false},
                                {"levels and loggers", LoggerLength, false},
                                {"time stamps", StampLength, false}};

// The label that enough of the remaining lines begin with; null if there is none.
const LogLabel* LabelOf(const std::vector<LogLine>& lines, std::size_t& count) {
  for (const LogLabel& label : kLabels) {
    count = static_cast<std::size_t>(std::ranges::count_if(
        lines, [&](const LogLine& line) { return label.length(line.text) > 0; }));
    if (label.is_only_a_tag ? count > 0 : 2 * count > lines.size()) return &label;
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
    for (const char c : bytes) AddCharacter(CodeOfLatin(static_cast<unsigned char>(c)), text);
    return WithNewlines(std::move(text));
  }
  if (!encoding.empty() && encoding != "utf-8" && encoding != "any") {
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "encoding = \"{}\": expected utf-8, which also takes UTF-16 with its mark, or latin-1",
            encoding));
  }
  const std::string_view otherwise = encoding.empty() ? ", or --encoding latin-1" : "";
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    std::string text = FromUtf16(bytes, bytes.starts_with("\xfe"), name);
    CheckUtf8(text, name, otherwise);
    return WithNewlines(std::move(text));
  }
  if (bytes.starts_with(kMark)) bytes.remove_prefix(kMark.size());
  if (encoding != "any") CheckUtf8(bytes, name, otherwise);
  return WithNewlines(std::string(bytes));
}

std::string DecodedLog(std::string_view bytes, const std::string& name,
                       const std::string& encoding) {
  return WithoutTerminal(DecodedText(bytes, name, encoding));
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
  constexpr int kMostLabels = 4;
  std::size_t count = 0;
  for (int l = 0; l < kMostLabels; ++l) {
    const LogLabel* const label = LabelOf(log.lines, count);
    if (label == nullptr) break;
    bool shown = false;
    for (LogLine& line : log.lines) {
      const std::size_t length = label->length(line.text);
      if (length > 0 && !shown) {
        log.notes.push_back(fmt::format("{} (\"{}\") taken off before {} lines", label->name,
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

std::string WithPlainSpaces(std::string_view text, std::size_t* count) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const Character character = byte < 0x80 ? Character{byte, 1} : FirstCharacter(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    if (character.bytes > 1 && IsOddSpace(character.code)) {
      made += ' ';
      if (count != nullptr) ++*count;
    } else {
      made += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
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
    if (IsOddSpace(code)) what = "a space";
    if ((code >= 0x200b && code <= 0x200f) || code == 0x2060 || code == 0xfeff)
      what = "of no width";
    if (what != nullptr) return fmt::format("U+{:04X} ({}) at character {}", code, what, at);
  }
  return "";
}

}  // namespace sparfuse::harness
