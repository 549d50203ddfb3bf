// Checks a trial of a bundle against its files, and against the other trials of the bundle.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "harness/bundle/bundled_trial.hpp"
#include "harness/store/evidence/copied_steps.hpp"

namespace sparfuse::harness {

// "" or the contradiction between the trial and its files: another list of files, a number that
// differs from outcome.json (from which a run makes its trial), or a missing outcome.json.
std::string WhatFilesContradict(const BundledTrial& bundled);

// Compares the trials of one bundle with each other.
class OtherTrials {
 public:
  // "" or the contradiction between the trial and one that was checked before. Trials of one launch
  // began together on the same hosts, and are no more than the launch says. No trial has the steps
  // of another (KnownSteps). If there is no contradiction, later trials are checked against this
  // one, too.
  std::string WhatContradicts(const BundledTrial& bundled);

 private:
  struct OfLaunch {
    std::string first, started_utc;
    TrialLaunch launch;
    int trials = 0;
  };
  std::map<std::pair<std::string, std::string>, OfLaunch> launches_;  // by origin and id
  KnownSteps steps_;
};

}  // namespace sparfuse::harness
