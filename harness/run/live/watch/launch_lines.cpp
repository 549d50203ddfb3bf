#include "harness/run/live/watch/launch_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace sparfuse::harness {
namespace {

// Of a line's begin what is kept: a label and what tells it from others.
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

}  // namespace sparfuse::harness
