#include "harness/run/live/watch/launch_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse::harness {
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
    SPARFUSE_THROW(kConfig, fmt::format("SPARFUSE_START_SECONDS={}: expected seconds, more than 0, "
                                        "within which ranks have to meet",
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
