// Tells, after a launch, which of its trials ended, which one ended it, which run again, and how
// long each of them took.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "harness/run/live/launch/launcher.hpp"

namespace sparfuse::harness {

// Lies in the directory of the trial whose turn it is, in a launch of several.
inline constexpr const char* kTurnFile = "turn";

enum class TrialEnd {
  kEnded,   // with an outcome, or the launch ended well and it left none
  kFailed,  // it ended the launch
  kAgain,   // another one did, before it had an outcome
};

struct LaunchEnd {
  std::vector<TrialEnd> trials;
  // Nobody knows who ended it, or there was too little memory for all: those that run again do so
  // each in a launch of its own.
  bool alone = false;
};

// directories: of the launch's trials. A launch that did not end well was ended by the trials whose
// ranks left an error of their own; else by the one whose turn it was, as where a process died or
// did not end; else by those whose ranks left any error.
LaunchEnd EndOf(const std::vector<std::filesystem::path>& directories, const LaunchResult& end);

// How long a launch of `seconds` took for each of its trials that ended. turns: seconds of each
// one, 0 of those without an outcome. What is left is the start and end of the processes, shared by
// all where every trial of the launch ended with an outcome, else it goes to those without one.
struct LaunchTime {
  std::vector<double> trial_seconds;
  std::optional<double> start_seconds;
};
LaunchTime TimeOf(std::span<const double> turns, double seconds, bool all_ended);

// Removes what a launch left in the directory of a trial that runs again: all but config.json and
// private.json.
void EmptyForAnotherLaunch(const std::filesystem::path& directory);

}  // namespace sparfuse::harness
