#include "harness/run/live/launch/trial_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

namespace sparfuse::harness {
namespace {

constexpr std::size_t kSentence = 512;  // the longest launcher message that is read

std::string_view EndOf(std::string_view text, std::size_t bytes) {
  return text.substr(text.size() - std::min(text.size(), bytes));
}

std::string_view WithoutSpace(std::string_view text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.remove_prefix(static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_space) -
                                              text.begin()));
  return text;
}

// The number at the begin of `text`, after white space.
std::optional<int> NumberAtBegin(std::string_view text) {
  text = WithoutSpace(text);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

// The number after the first `words` in `text`.
std::optional<int> NumberAfter(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  return NumberAtBegin(text.substr(at + words.size()));
}

// Calls read(text after `words`) for each `words` in `text`, the last first, until it returns true.
template <class Read>
void ForEachFromTheEnd(std::string_view text, std::string_view words, const Read& read) {
  for (std::size_t at = text.rfind(words); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind(words, at - 1)) {
    if (read(text.substr(at + words.size(), kSentence))) return;
  }
}

// Reads "process rank 1 with PID 7 on node n exited on signal 11 (Segmentation fault)", in one line
// or two.
bool ReadSignal(std::string_view text, LauncherReport& report) {
  const std::size_t line = text.find('\n');
  const std::string_view two_lines =
      line == std::string_view::npos ? text : text.substr(0, text.find('\n', line + 1));
  const std::size_t exited = two_lines.find("exited on");
  if (exited == std::string_view::npos) return false;
  const auto rank = NumberAtBegin(text);
  const auto signal = NumberAfter(WithoutSpace(text.substr(exited)), "signal");
  if (!rank || !signal) return false;
  report.rank = rank;
  report.signal = signal;
  return true;
}

// Reads " [[50911,1],0]\n  Exit code:    3".
bool ReadExit(std::string_view text, LauncherReport& report) {
  const auto rank = NumberAfter(text.substr(0, text.find('\n')), "],");
  const auto exit_code = NumberAfter(text, "Exit code:");
  if (!rank || !exit_code) return false;
  report.rank = rank;
  report.exit_code = exit_code;
  return true;
}

// Reads "n2: task 3: Killed" or "n2: tasks 2-3: Exited with exit code 1".
bool ReadTask(std::string_view text, LauncherReport& report) {
  text = text.substr(0, text.find('\n'));
  const std::size_t at = text.find(": task");
  if (at == std::string_view::npos) return false;
  text.remove_prefix(at + 6);
  if (text.starts_with('s')) text.remove_prefix(1);
  const auto rank = NumberAtBegin(text);
  const std::size_t colon = text.find(": ");
  if (!rank || colon == std::string_view::npos) return false;
  const std::string_view how = text.substr(colon + 2);
  if (const auto code = NumberAfter(how, "Exited with exit code")) {
    report = {rank, std::nullopt, code};
    return true;
  }
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTERM}) {
    if (!how.starts_with(strsignal(signal))) continue;
    report = {rank, signal, std::nullopt};
    return true;
  }
  return false;
}

bool ReadAbort(std::string_view text, LauncherReport& report) {
  report.rank = NumberAtBegin(text);
  return report.rank.has_value();
}

// Removes a rule from the end of a line. Returns whether there was one. The launcher prints a rule
// when a process has stopped printing, perhaps in the middle of a line.
bool TakeRule(std::string_view& line) {
  constexpr std::size_t kShortest = 20;
  const std::size_t text = line.find_last_not_of('-') + 1;  // 0 if all characters are dashes
  if (line.size() - text < kShortest) return false;
  line = line.substr(0, text);
  return true;
}

}  // namespace

LogCopy::Pipe LogCopy::Drain() {
  constexpr int kMostReads = 16;
  char bytes[65536];
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t size = ::read(pipe_, bytes, sizeof(bytes));
    if (size < 0) return errno == EINTR ? Pipe::kMore : Pipe::kEmpty;
    if (size == 0) return Pipe::kClosed;
    Take({bytes, static_cast<std::size_t>(size)});
  }
  return Pipe::kMore;
}

void LogCopy::Take(std::string_view bytes) {
  if (lines_ != nullptr) lines_->Take(bytes);
  const std::string_view head = bytes.substr(0, kMostLogBytes - written_);
  Write(head);
  written_ += head.size();
  const std::string_view rest = bytes.substr(head.size());
  if (rest.empty()) return;
  if (!full_) {
    Write(
        fmt::format("\n[sparfuse: this log has reached its limit of {} MiB; of the rest, the last "
                    "{} KiB are kept]\n",
                    kMostLogBytes >> 20, kLogEndBytes >> 10));
    full_ = true;
  }
  end_ += rest;
  if (end_.size() < 4 * kLogEndBytes) return;  // erased seldom, because the rest is moved
  left_out_ += end_.size() - kLogEndBytes;
  end_.erase(0, end_.size() - kLogEndBytes);
}

void LogCopy::Finish() {
  if (!full_) return;
  const std::string_view last = EndOf(end_, kLogEndBytes);
  Write(fmt::format("[sparfuse: {} bytes were left out]\n", left_out_ + end_.size() - last.size()));
  Write(last);
}

// Bytes that cannot be written, on a full disk for instance, are lost. The trial goes on.
void LogCopy::Write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t size = ::write(log_, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

LauncherReport ParseLauncherReport(std::string_view log) {
  const std::string_view end = EndOf(log, kLogEndBytes);
  LauncherReport report;
  const auto reads = [&](bool (*read)(std::string_view, LauncherReport&)) {
    return [&report, read](std::string_view text) { return read(text, report); };
  };
  ForEachFromTheEnd(end, "process rank ", reads(ReadSignal));
  if (!report.rank) ForEachFromTheEnd(end, "Process name:", reads(ReadExit));
  // srun ends the others after the first failure, which it names first.
  if (!report.rank) {
    ForEachFromTheEnd(end, "srun: error: ", [&](std::string_view text) {
      ReadTask(text, report);
      return false;
    });
  }
  if (!report.rank) ForEachFromTheEnd(end, "MPI_ABORT was invoked on rank ", reads(ReadAbort));
  return report;
}

std::string Tail(std::string_view log, std::size_t lines) {
  constexpr std::size_t kMostBytes = 8192;
  std::size_t begin = log.size();
  std::size_t seen = 0;
  while (begin > 0 && log.size() - begin < kMostBytes) {
    if (log[begin - 1] == '\n' && begin != log.size() && ++seen == lines) break;
    --begin;
  }
  return std::string(log.substr(begin));
}

std::string LastWords(std::string_view log) {
  constexpr std::size_t kMostBytes = 300, kMostOfReport = 1200;
  std::string_view last;
  std::string report;     // the launcher's report, which lies between two rules
  bool reported = false;  // a rule came before any line
  for (std::string_view rest = EndOf(log, kLogEndBytes); !rest.empty();) {
    const std::size_t size = std::min(rest.find('\n'), rest.size());
    std::string_view line = WithoutSpace(rest.substr(0, size));
    rest.remove_prefix(std::min(size + 1, rest.size()));
    const bool rule = TakeRule(line);
    if (reported) {
      if (!line.empty()) report += fmt::format("{}{}", report.empty() ? "" : " ", line);
      if (rule && !report.empty()) break;
      continue;
    }
    // srun counts who ended how, after the messages of its daemons and the ranks.
    if (!line.empty() && (last.empty() || !line.starts_with("srun: "))) last = line;
    if (!last.empty() && rule) break;
    reported = rule;
  }
  std::string words =
      report.empty() ? std::string(last.substr(0, kMostBytes)) : report.substr(0, kMostOfReport);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return words;
}

}  // namespace sparfuse::harness
