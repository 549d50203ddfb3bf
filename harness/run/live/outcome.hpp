// Puts together the outcome of a launched trial from its directory and its launcher's end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "harness/records/trial.hpp"
#include "harness/run/live/launch/launcher.hpp"

namespace sparfuse::harness {

// Judges the files in a trial's directory. An invalid trial has checks and no metrics: correctness
// comes before speed. timeout_seconds: of the whole launch.
Outcome CollectOutcome(const std::filesystem::path& directory, const LaunchResult& end,
                       double timeout_seconds);

// The errors that failed ranks left in the trial's directory, the most telling first.
struct RankFailure {
  std::string kind, message;
  int rank = 0;
  std::filesystem::file_time_type written;

  // Whether it may be the effect of another rank's failure.
  bool is_consequence() const { return kind == "timeout" || kind == "comm"; }
};
std::vector<RankFailure> RankFailures(const std::filesystem::path& directory);

// The same for an outcome that is already at hand (a modelled trial), and for one that threw.
Outcome JudgeOutcome(Outcome outcome);
Outcome FailedOutcome(const Error& error);

}  // namespace sparfuse::harness
