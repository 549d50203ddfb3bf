// Writes trials into the store: their directories and config.json before they run, and trial.json,
// which makes them exist, once they ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// The name of a trial's directory, without the number that makes it new. origin: OriginOf
// (harness/store/origin.hpp), or "" for names in messages.
std::string StemOf(const PlannedTrial& trial, const std::string& origin = "");

struct HowItRan {
  std::string started;  // UTC
  double seconds = 0;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::optional<TrialLaunch> launch;            // of a live trial
  std::optional<Fingerprint> fingerprint = {};  // of the system, when the run began
  bool across_hosts = false;  // its nodes make its system, not the controller's host
};

class TrialWriter {
 public:
  // `store` and `lock` must outlive this object.
  TrialWriter(const Store& store, const StoreLock& lock, SourceState source);

  // A directory with config.json, as both kinds of trials find it, and private.json.
  TrialConfig Begin(const PlannedTrial& trial) const;

  // outcome: judged. Its facts and `how`'s about people and a site go into private.json. The rest
  // makes the trial, which is written and returned with the failure's message.
  Trial Finish(const PlannedTrial& planned, const std::string& id, Outcome outcome,
               const HowItRan& how) const;

 private:
  const Store& store_;
  const StoreLock& lock_;
  SourceState source_;
};

}  // namespace sparfuse::harness
