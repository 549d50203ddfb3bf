// Says when a launch has to end before its time is up: where one of its phases takes too long.
// Ranks have deadlines of their own for what they wait for in a step, but whoever is stopped, or
// stuck in MPI's start or end, watches nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/live/watch/launch_lines.hpp"

namespace sparfuse::harness {

// Seconds.
struct PhaseLimits {
  double start = 120;         // from the launch until the ranks have met
  double after_failure = 1;   // from the first rank's error until all have ended
  double after_results = 30;  // from the last trial's outcome until all have ended
  // From when the ranks have met until they measure, and then without a line from them: the longest
  // that one of the launch's trials may take. Trials that take turns say so every round.
  std::optional<double> setup = {}, silence = {};

  // start: SPARFUSE_START_SECONDS where that is set, a number above 0; else Error{kConfig}.
  static PhaseLimits OfEnvironment();
};

class LaunchWatch {
 public:
  // directories: of the launch's trials. meets: whether its ranks say that they have met.
  LaunchWatch(std::vector<std::filesystem::path> directories, bool meets, PhaseLimits limits);

  // Why the launch has to end now, a sentence's end ("..., which ..."), or "". To be asked with
  // seconds since the launch began, which do not decrease, and what its ranks said so far: they may
  // be on hosts whose folders are not these.
  std::string WhyToEnd(double seconds, const LaunchSaid& said);
  // Whether that was so because ranks had not met.
  bool start_was_late() const noexcept { return start_was_late_; }

 private:
  std::vector<std::filesystem::path> directories_;
  bool meets_;
  PhaseLimits limits_;
  std::optional<double> failed_, complete_, met_;  // since when
  std::uint64_t said_ = 0;                         // bytes
  double said_at_ = 0;
  bool start_was_late_ = false;
};

}  // namespace sparfuse::harness
