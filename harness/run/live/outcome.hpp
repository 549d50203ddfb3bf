// Puts together the outcome of a launched trial from its directory and its launcher's end.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "harness/records/trial.hpp"
#include "harness/run/live/launch/launcher.hpp"

namespace sparfuse::harness {

// Judges the files in a trial's directory. An invalid trial has checks and no metrics: correctness
// comes before speed. timeout_seconds: of the whole launch.
Outcome CollectOutcome(const std::filesystem::path& directory, const LaunchResult& end,
                       double timeout_seconds);

// The same for an outcome that is already at hand (a modelled trial), and for one that threw.
Outcome JudgeOutcome(Outcome outcome);
Outcome FailedOutcome(const Error& error);

// A file in the directory of the trial whose turn it is, in a launch of several.
inline constexpr const char* kTurnFile = "turn";

enum class TrialEnd {
  kEnded,   // with an outcome, or the launch ended well and it left none
  kFailed,  // it ended the launch
  kAgain,   // another one did, before it had an outcome
};

struct LaunchEnd {
  std::vector<TrialEnd> trials;
  // The trial at fault is unknown, or there was too little memory for all. Trials that run again
  // then do so in a launch of their own each.
  bool alone = false;
};

// directories: of the launch's trials. If a launch did not end well, the trials at fault are those
// whose ranks left an error of their own; else the trial whose turn it was, for example if a
// process died or did not end; else those whose ranks left any error.
LaunchEnd EndOf(const std::vector<std::filesystem::path>& directories, const LaunchResult& end);

// The time that a launch of `seconds` took for each of its trials that ended. turns: the seconds of
// each, 0 for a trial without an outcome. The rest is the start and end of the processes. All
// trials share it if each ended with an outcome, else it goes to those without one.
struct LaunchTime {
  std::vector<double> trial_seconds;
  std::optional<double> start_seconds;
};
LaunchTime TimeOf(std::span<const double> turns, double seconds, bool all_ended);

// Removes a launch's files from the directory of a trial that runs again: all except config.json
// and private.json.
void EmptyForAnotherLaunch(const std::filesystem::path& directory);

}  // namespace sparfuse::harness
