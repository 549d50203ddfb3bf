#include "harness/run/live/launch/launch_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse::harness {

namespace {

// The kept begin of a line: a label, and the text that tells the line from others.
constexpr std::size_t kLookedAt = 512;
constexpr std::size_t kLongestLabel = 128;

bool IsLabel(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text.empty() || text.back() == ':' || text.back() == '>' || text.back() == ']';
}

}  // namespace

std::string FailureLine(int rank, std::string_view kind, std::string_view message) {
  return fmt::format("rank {}: {} error: {}", rank, kind, message);
}

bool IsFailureLine(std::string_view line) {
  auto rest = After("rank ", line);
  if (!rest) return false;
  const auto digits = static_cast<std::size_t>(
      std::ranges::find_if_not(*rest, [](unsigned char c) { return std::isdigit(c) != 0; }) -
      rest->begin());
  if (digits == 0 || rest->substr(digits, 2) != ": ") return false;
  rest->remove_prefix(digits + 2);
  constexpr std::string_view kError = " error: ";
  const std::size_t end = rest->find(kError);
  return end != std::string_view::npos && rest->substr(0, end).find(' ') == std::string_view::npos;
}

std::optional<std::string_view> After(std::string_view head, std::string_view line) {
  for (std::size_t at = line.substr(0, kLongestLabel + head.size()).find(head);
       at != std::string_view::npos && at <= kLongestLabel; at = line.find(head, at + 1)) {
    if (IsLabel(line.substr(0, at))) return line.substr(at + head.size());
  }
  return std::nullopt;
}

void LaunchLines::Take(std::string_view bytes) {
  said_.bytes += bytes.size();
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    line_ += bytes.substr(0, std::min(end, kLookedAt - std::min(kLookedAt, line_.size())));
    if (end == bytes.size()) return;
    TakeLine();
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LaunchLines::TakeLine() {
  if (After(kMetLine, line_)) said_.met = true;
  if (After(kMeasuringLine, line_)) said_.measures = true;
  if (After(kResultLine, line_)) ++said_.results;
  if (IsFailureLine(line_)) ++said_.failures;
}

namespace {

namespace fs = std::filesystem;

bool HasFailure(const fs::path& directory) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    if (entry.path().filename().string().starts_with("failure-rank")) return true;
  }
  return false;
}

bool HasOutcome(const fs::path& directory) { return fs::exists(directory / "outcome.json"); }

}  // namespace

PhaseLimits PhaseLimits::OfEnvironment() {
  PhaseLimits limits;
  const char* text = std::getenv("SPARFUSE_START_SECONDS");
  if (text == nullptr || *text == '\0') return limits;
  const std::string_view given = text;
  const auto [end, error] =
      std::from_chars(given.data(), given.data() + given.size(), limits.start);
  if (error != std::errc() || end != given.data() + given.size() || !(limits.start > 0)) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "SPARFUSE_START_SECONDS={}: expected seconds above 0, the time for ranks to meet",
            given));
  }
  return limits;
}

LaunchWatch::LaunchWatch(std::vector<fs::path> directories, bool meets, PhaseLimits limits)
    : directories_(std::move(directories)), meets_(meets), limits_(limits) {}

std::string LaunchWatch::WhyToEnd(double seconds, const LaunchSaid& said) {
  if (!failed_ && (said.failures > 0 || std::ranges::any_of(directories_, HasFailure)))
    failed_ = seconds;
  if (failed_ && seconds - *failed_ > limits_.after_failure)
    return fmt::format("others did not end within {} s after a rank failed", limits_.after_failure);
  if (!complete_ &&
      (said.results >= directories_.size() || std::ranges::all_of(directories_, HasOutcome))) {
    complete_ = seconds;
  }
  if (complete_ && seconds - *complete_ > limits_.after_results)
    return fmt::format("ranks did not end within {} s after the last result",
                       limits_.after_results);
  if (!met_ && (!meets_ || said.met)) met_ = meets_ ? seconds : 0;
  if (!met_ && seconds > limits_.start) {
    start_was_late_ = true;
    return fmt::format("ranks did not meet within {} s of the launch", limits_.start);
  }
  if (const std::uint64_t bytes = said.bytes; bytes != said_) {
    said_ = bytes;
    said_at_ = seconds;
  }
  if (said.measures) {
    if (limits_.silence && seconds - said_at_ > *limits_.silence) {
      return fmt::format(
          "ranks said nothing for {} s, the longest that a trial of this launch may take",
          *limits_.silence);
    }
  } else if (limits_.setup && met_ && !complete_ && seconds - *met_ > *limits_.setup) {
    return fmt::format(
        "ranks made no step within {} s of their meeting, the longest that a trial of this launch "
        "may take",
        *limits_.setup);
  }
  return "";
}

namespace {

constexpr std::size_t kSentence = 512;  // the longest launcher message that is read

std::string_view EndOf(std::string_view text, std::size_t bytes) {
  return text.substr(text.size() - std::min(text.size(), bytes));
}

std::string_view WithoutSpace(std::string_view text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.remove_prefix(
      static_cast<std::size_t>(std::ranges::find_if_not(text, is_space) - text.begin()));
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
  std::ranges::replace_if(
      words, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return words;
}

}  // namespace sparfuse::harness
