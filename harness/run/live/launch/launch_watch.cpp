#include "harness/run/live/launch/launch_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>
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

}  // namespace sparfuse::harness
