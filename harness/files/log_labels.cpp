#include "harness/files/log_labels.hpp"

#include <algorithm>
#include <cctype>

namespace sparfuse::harness {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

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

}  // namespace

std::span<const LogLabel> LogLabels() { return kLabels; }

}  // namespace sparfuse::harness
