// Holds a trial of a bundle to the files that lie beside it, and to the other trials of its bundle.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "harness/bundle/bundled_trial.hpp"
#include "harness/store/evidence/copied_steps.hpp"

namespace sparfuse::harness {

// "" or what its files say otherwise than the trial: its list of files, a number by outcome.json,
// from which a run makes its trial, or that file missing.
std::string WhatFilesContradict(const BundledTrial& bundled);

// What trials of one bundle say of each other.
class OtherTrials {
 public:
  // "" or how the trial contradicts one that was held before: trials of one launch began together,
  // on the same hosts, and are no more than the launch says; none has the steps of another
  // (KnownSteps). Takes the trial among those that later ones are held to if it is "".
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
