// Writes trials into the store: their directories and config.json before they run, and trial.json,
// which makes them exist, once they ended.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// The name of a trial's directory, without the number that makes it new. origin: OriginOf
// (harness/store/origin.hpp), or "" for what people are told.
std::string StemOf(const PlannedTrial& trial, const std::string& origin = "");

struct HowItRan {
  std::string started;  // UTC
  double seconds = 0;
  std::vector<std::string> argv;
  nlohmann::json environment;
  nlohmann::json launch;            // null: of a modelled trial
  nlohmann::json fingerprint = {};  // of the system, when the run began; null: none was taken
  bool across_hosts = false;        // its nodes make its system, not the controller's host
};

class TrialWriter {
 public:
  // `store` and `lock` must outlive this object. source: DescribeSource().
  TrialWriter(const Store& store, const StoreLock& lock, nlohmann::json source);

  // A directory with config.json, as both kinds of trials find it.
  TrialConfig Begin(const PlannedTrial& trial) const;

  // outcome: as CollectOutcome gives it, judged. Returns the content of trial.json.
  nlohmann::json Finish(const PlannedTrial& planned, const std::string& id, nlohmann::json outcome,
                        const HowItRan& how) const;

 private:
  std::string OriginOf(const nlohmann::json& system) const;

  const Store& store_;
  const StoreLock& lock_;
  nlohmann::json source_;
};

}  // namespace sparfuse::harness
